// Charts of curves over time, steps or numbers of devices, drawn by uPlot when they come into view.

const charts = [];

// Round numbers 1, 2, 5, 10, ... within a range, thinned out to at most seven.
function logSplits(low, high) {
  const found = [];
  for (let decade = Math.floor(Math.log10(low)); decade <= Math.ceil(Math.log10(high)); decade += 1) {
    for (const factor of [1, 2, 5]) {
      const tick = factor * 10 ** decade;
      if (tick >= low && tick <= high) found.push(tick);
    }
  }
  const every = Math.ceil(found.length / 7);
  return found.filter((_, i) => i % every === 0);
}

function heightScale(chart) {
  const values = chart.series.flatMap((one) => one.y).filter((value) => value !== null);
  const highest = Math.max(1e-9, ...values);
  if (chart.isLog) {
    const lowest = Math.min(highest, ...values.filter((value) => value > 0));
    return { distr: 3, range: [lowest / 1.2, highest * 1.2] };
  }
  if (chart.unit === "%") return { range: [0, Math.max(100, highest)] };
  return { range: [0, chart.high ?? Math.max(1, highest) * 1.05] };
}

// The x axis: time since the start, step numbers, or numbers of devices on a logarithmic scale.
function widthAxis(chart) {
  if (chart.xName === "devices") {
    const first = chart.x[0];
    const last = chart.x[chart.x.length - 1];
    return {
      scale: { time: false, distr: 3, log: 2, range: [first / 1.1, last * 1.1] },
      axis: { splits: () => chart.x, filter: (_, ticks) => ticks, values: (_, ticks) => ticks.map(String) },
      format: String,
    };
  }
  if (chart.xName === "step") {
    return { scale: { time: false }, axis: { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6, 1e7] }, format: String };
  }
  const values = (_, ticks) => ticks.map((tick) => formatTick(tick, ticks[1] - ticks[0] || 1));
  return { scale: { time: false }, axis: { values, space: 90 }, format: formatNs };
}

function seriesOptions(chart, one, i) {
  // Strategies with equal values would hide each other if their dashes were alike.
  const dash = chart.xName === "devices" ? [undefined, [9, 9], [3, 9]][i % 3] : i > 5 ? [6, 3] : undefined;
  return {
    label: one.label,
    stroke: () => cssColour(`s${(one.colour ?? i) % 10}`),
    width: i === 0 ? 2 : 1.5,
    dash,
    spanGaps: chart.isLine,
    points: { show: chart.xName === "devices", size: 6 },
    paths: chart.isLine ? uPlot.paths.linear() : uPlot.paths.stepped({ align: 1 }),
    value: (_, value) => (value == null ? "" : formatUnit(value, chart.unit)),
  };
}

function chartOptions(chart, width) {
  const line = { stroke: () => cssColour("line"), width: 1 };
  const axis = { stroke: () => cssColour("soft"), grid: line, ticks: line };
  const across = widthAxis(chart);
  const splits = chart.isLog ? { splits: (_, __, low, high) => logSplits(low, high), filter: (_, ticks) => ticks } : {};
  return {
    title: chart.title,
    width,
    height: 240,
    cursor: { drag: { x: true, y: false } },
    scales: { x: across.scale, y: heightScale(chart) },
    axes: [
      { ...axis, ...across.axis },
      { ...axis, ...splits, values: (_, ticks) => ticks.map((tick) => formatUnit(tick, chart.unit)), size: 72 },
    ],
    series: [
      { label: chart.xName ?? "time", value: (_, x) => (x == null ? "" : across.format(x)) },
      ...chart.series.map((one, i) => seriesOptions(chart, one, i)),
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
