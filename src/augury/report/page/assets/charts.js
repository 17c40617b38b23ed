// Charts of curves over time, drawn by uPlot when they come into view.

const charts = [];

function chartOptions(chart, width) {
  const axis = {
    stroke: () => cssColour("soft"),
    grid: { stroke: () => cssColour("line"), width: 1 },
    ticks: { stroke: () => cssColour("line"), width: 1 },
  };
  const highest = Math.max(1, ...chart.series.flatMap((one) => one.y));
  return {
    title: chart.title,
    width,
    height: 240,
    cursor: { drag: { x: true, y: false } },
    scales: { x: { time: false }, y: { range: [0, chart.unit === "%" ? 100 : highest * 1.05] } },
    axes: [
      { ...axis, values: (_, ticks) => ticks.map((tick) => formatTick(tick, ticks[1] - ticks[0] || 1)), space: 90 },
      { ...axis, values: (_, ticks) => ticks.map((tick) => formatUnit(tick, chart.unit)), size: 72 },
    ],
    series: [
      { label: "time", value: (_, ns) => (ns == null ? "" : formatNs(ns)) },
      ...chart.series.map((one, i) => ({
        label: one.label,
        stroke: () => cssColour(`s${i % 10}`),
        width: i === 0 ? 2 : 1.5,
        dash: i % 10 > 5 ? [6, 3] : undefined,
        points: { show: false },
        paths: uPlot.paths.stepped({ align: 1 }),
        value: (_, value) => (value == null ? "" : formatUnit(value, chart.unit)),
      })),
    ],
  };
}

function drawChart(box, chart) {
  const data = [chart.x, ...chart.series.map((one) => one.y)];
  const plot = new uPlot(chartOptions(chart, box.clientWidth), data, box);
  charts.push(plot);
  new ResizeObserver(() => {
    if (box.clientWidth && box.clientWidth !== plot.width) plot.setSize({ width: box.clientWidth, height: 240 });
  }).observe(box);
}

function startCharts(data) {
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        drawChart(entry.target, data[entry.target.id]);
      }
    },
    { rootMargin: "400px" },
  );
  const drawAll = () => {
    for (const box of document.querySelectorAll(".chart")) {
      if (!box.firstChild && data[box.id]) drawChart(box, data[box.id]);
    }
  };
  for (const box of document.querySelectorAll(".chart")) if (data[box.id]) seen.observe(box);
  window.addEventListener("beforeprint", drawAll);
}

function redrawCharts() {
  for (const plot of charts) plot.redraw(false, true);
}
