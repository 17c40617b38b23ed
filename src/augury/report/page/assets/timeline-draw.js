// Draws the visible part of the timeline on its canvas.

const TICK_STEPS = [1, 2, 5];
const NARROW_GUTTER = 170;

function readColours(data) {
  const names = ["paper", "panel", "line", "text", "soft", "path", "pick", "hit", "compute", "communication", "focus"];
  const found = Object.fromEntries(names.map((name) => [name, cssColour(name)]));
  found.kinds = data.colours.map(cssColour);
  found.onKinds = found.kinds.map((colour) => (isDark(colour) ? "#ffffff" : "#000000"));
  return found;
}

// Whether white text has more contrast on a colour than black text (WCAG 2).
function isDark(hex) {
  const [r, g, b] = [1, 3, 5].map((i) => {
    const part = parseInt(hex.slice(i, i + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05;
}

function tickSpacing(spanNs, width) {
  const least = spanNs / Math.max(1, width / 90);
  const decade = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return TICK_STEPS.map((step) => step * decade).find((spacing) => spacing >= least) || 10 * decade;
}

function drawTimeline(state) {
  const { canvas, data, view, colours, gutter } = state;
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, state.height];
  if (!width) return;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = colours.paper;
  pen.fillRect(0, 0, width, height);
  const scale = (width - gutter) / (view.t1 - view.t0);
  const x = (ns) => gutter + (ns - view.t0) * scale;
  const frame = { ...state, pen, width, height, scale, x };
  pen.textBaseline = "middle";
  const font = (size, weight = "") => `${weight} ${size}px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif`;
  frame.font = font;

  const first = rowAt(state.rows, state.scroll);
  pen.save();
  pen.beginPath();
  pen.rect(0, RULER_HEIGHT, width, height - RULER_HEIGHT);
  pen.clip();
  for (let i = first; i < state.rows.length; i++) {
    const row = state.rows[i];
    const y = RULER_HEIGHT + row.y - state.scroll;
    if (y > height) break;
    if (row.type === "lane") drawLane(frame, row, y, i === state.focusRow);
    else drawRank(frame, row, y, i === state.focusRow);
  }
  drawFlows(frame);
  pen.restore();
  drawRuler(frame);
  if (state.range) {
    pen.fillStyle = colours.focus;
    pen.globalAlpha = 0.18;
    pen.fillRect(Math.min(...state.range), 0, Math.abs(state.range[1] - state.range[0]), height);
    pen.globalAlpha = 1;
  }
}

function drawRuler({ pen, width, x, view, gutter, colours, font, steps }) {
  pen.fillStyle = colours.paper;
  pen.fillRect(0, 0, width, RULER_HEIGHT);
  pen.fillStyle = colours.line;
  pen.fillRect(0, RULER_HEIGHT - 1, width, 1);
  pen.font = font(11);
  const spacing = tickSpacing(view.t1 - view.t0, width - gutter);
  for (let ns = Math.ceil(view.t0 / spacing) * spacing; ns <= view.t1; ns += spacing) {
    pen.fillStyle = colours.line;
    pen.fillRect(x(ns), RULER_HEIGHT - 6, 1, 5);
    pen.fillStyle = colours.soft;
    const words = formatTick(ns, spacing);
    if (x(ns) + 3 + pen.measureText(words).width <= width) pen.fillText(words, x(ns) + 3, 9);
  }
  pen.fillStyle = colours.paper;
  pen.fillRect(0, 0, gutter, RULER_HEIGHT - 1);
  pen.fillStyle = colours.soft;
  const here = steps.find(([, , , start, end]) => start <= (view.t0 + view.t1) / 2 && end > (view.t0 + view.t1) / 2);
  const words = gutter < NARROW_GUTTER ? "" : ` in view${here ? `, step ${here[2]}` : ""}`;
  pen.fillText(`${formatNs(view.t1 - view.t0)}${words}`, 8, 11);
}

function drawLabel({ pen, gutter, colours, font }, text, y, height, indent, colour, weight) {
  pen.save();
  pen.beginPath();
  pen.rect(0, y, gutter - 4, height);
  pen.clip();
  pen.font = font(11, weight);
  pen.fillStyle = colour || colours.soft;
  pen.fillText(text, indent, y + height / 2 + 0.5);
  pen.restore();
}

function drawRank(frame, row, y, isFocused) {
  const { pen, colours, gutter, width, data, open, x } = frame;
  pen.fillStyle = colours.panel;
  pen.fillRect(0, y, width, row.height);
  pen.fillStyle = colours.line;
  pen.fillRect(0, y, width, 1);
  if (isFocused) markFocus(frame, y, row.height);
  const sign = row.type === "title" ? "" : row.canOpen ? (open.has(row.rank) ? "▾ " : "▸ ") : "   ";
  drawLabel(frame, sign + row.label, y, row.height, 8, colours.text, "600");
  if (row.type !== "rank" || !data.stripBins) return;
  // Two thin bands: compute above, communication below; the fuller the darker.
  const bins = data.stripBins;
  const whole = data.windowEndNs;
  for (const [band, colour] of [[0, colours.compute], [1, colours.communication]]) {
    pen.fillStyle = colour;
    const base = (2 * row.place + band) * bins;
    for (let bin = 0; bin < bins; bin++) {
      const share = data.strips[base + bin];
      if (!share) continue;
      const [left, right] = [x((bin * whole) / bins), x(((bin + 1) * whole) / bins)];
      if (right < gutter || left > width) continue;
      pen.globalAlpha = 0.15 + 0.75 * (share / 100);
      pen.fillRect(Math.max(gutter, left), y + 4 + band * 8, right - Math.max(gutter, left) + 0.3, 6);
    }
  }
  pen.globalAlpha = 1;
}

function markFocus({ pen, colours, gutter }, y, height) {
  pen.fillStyle = colours.focus;
  pen.fillRect(0, y, 3, height);
}

function drawLane(frame, row, y, isFocused) {
  const { pen, data, colours, gutter, width, view, x, matches, selected, showPath } = frame;
  const top = y + 1;
  const height = LANE_HEIGHT - 3;
  const isPath = row.rank < 0 && row.label === "critical path";
  if (row.source === MEASURED) {
    pen.fillStyle = colours.panel;
    pen.globalAlpha = 0.7;
    pen.fillRect(0, y, gutter, row.height);
    pen.globalAlpha = 1;
  }
  drawSteps(frame, row, y);
  const last = data.firstOf[row.lane + 1];
  const fits = [];
  let reach = -1;
  for (let i = sliceAfter(data, row.lane, view.t0); i < last && data.startNs[i] < view.t1; i++) {
    const left = Math.max(gutter, x(data.startNs[i]));
    const right = Math.min(width, x(data.endNs[i]));
    if (right <= reach && right - left < 1 && !(matches && matches.has(i))) continue;
    const look = data.look[i];
    const kind = look & 255;
    const isHit = !matches || matches.has(i);
    pen.globalAlpha = isHit ? 1 : 0.2;
    pen.fillStyle = colours.kinds[kind];
    const wide = Math.max(1, right - left - (right - left > 3 ? 0.6 : 0));
    const begun = data.wait[i] ? Math.min(right, Math.max(left, x(data.startNs[i] + data.wait[i] * data.unitNs))) : left;
    if (begun > left) {
      pen.globalAlpha = isHit ? 0.35 : 0.1;
      pen.fillRect(left, top + 3, begun - left, height - 6);
      pen.globalAlpha = isHit ? 1 : 0.2;
    }
    if (data.count[i] > 1) pen.globalAlpha *= 0.6;
    if (begun < right || wide <= 1) pen.fillRect(begun, top, Math.max(1, wide - (begun - left)), height);
    if (showPath && !isPath && look >> 8 & 255) {
      pen.globalAlpha = isHit ? 1 : 0.3;
      pen.fillStyle = colours.path;
      pen.fillRect(left, top + height, wide, 2);
    }
    reach = left + wide;
    if (right - begun > 34) fits.push([i, begun, right, kind]);
    if (i === selected) {
      pen.globalAlpha = 1;
      pen.strokeStyle = colours.pick;
      pen.lineWidth = 2;
      pen.strokeRect(left - 1, top - 0.5, Math.max(3, right - left + 1), height + 1);
    }
  }
  pen.globalAlpha = 1;
  pen.font = frame.font(10.5);
  for (const [i, left, right, kind] of fits) {
    const text = data.count[i] > 1 ? `${data.count[i]} operations` : data.name[i] ? data.names[data.name[i] - 1] : "";
    const layer = data.layer[i] ? data.names[data.layer[i] - 1] : "";
    pen.save();
    pen.beginPath();
    pen.rect(left, top, right - left - 3, height);
    pen.clip();
    pen.fillStyle = colours.onKinds[kind];
    pen.globalAlpha = !matches || matches.has(i) ? 1 : 0.4;
    pen.fillText(layer && !text.includes(layer) ? `${text} · ${layer}` : text, left + 4, top + height / 2 + 0.5);
    pen.restore();
  }
  if (isFocused) markFocus(frame, y, row.height);
  const weight = isPath ? "600" : "";
  drawLabel(frame, row.label, y, LANE_HEIGHT - 1, isPath ? 8 : 22, isPath ? colours.text : undefined, weight);
  if (isPath || row.source === undefined || !frame.hasMeasured) return;
  pen.font = frame.font(9);
  pen.fillStyle = colours.soft;
  const word = row.source === MEASURED ? "measured" : "replayed";
  const tag = gutter < NARROW_GUTTER ? word[0] : word;
  const tagWidth = pen.measureText(tag).width;
  pen.fillStyle = row.source === MEASURED ? colours.panel : colours.paper;
  pen.fillRect(gutter - tagWidth - 12, y, tagWidth + 12, LANE_HEIGHT - 1);
  pen.fillStyle = colours.soft;
  pen.fillText(tag, gutter - tagWidth - 6, y + LANE_HEIGHT / 2);
}

function drawSteps({ pen, data, colours, stepsOf, width, gutter, x }, row, y) {
  const twin = row.rank < 0 ? -1 : data.classes[data.ranks[row.rank][2]];
  const marks = stepsOf.get(`${row.source} ${twin}`);
  if (!marks) return;
  pen.fillStyle = colours.soft;
  pen.globalAlpha = 0.5;
  for (const [, , , start, end] of marks) {
    for (const at of [start, end]) {
      const left = x(at);
      if (left >= gutter && left <= width) pen.fillRect(left, y, 1, row.height);
    }
  }
  pen.globalAlpha = 1;
}

// Curves to and from the selected slice and, if wanted, between all critical slices in view.
function drawFlows(frame) {
  const { data, selected, showFlows, pen, colours } = frame;
  if (selected >= 0) for (const flow of data.flowsOf.get(selected) || []) drawFlow(frame, flow, colours.pick, 1.5);
  if (!showFlows) return;
  let drawn = 0;
  for (let flow = 0; flow < data.flowFrom.length && drawn < 400; flow++) {
    const [from, to] = [data.flowFrom[flow], data.flowTo[flow]];
    if (!(data.look[from] >> 8 & 255) || !(data.look[to] >> 8 & 255)) continue;
    drawn += drawFlow(frame, flow, colours.path, 0.8);
  }
  pen.lineWidth = 1;
}

function drawFlow({ pen, data, rowOfLane, rows, scroll, x, view, gutter }, flow, colour, lineWidth) {
  const [from, to] = [data.flowFrom[flow], data.flowTo[flow]];
  const [a, b] = [rowOfLane.get(data.lane[from]), rowOfLane.get(data.lane[to])];
  if (a === undefined || b === undefined) return 0;
  if (data.endNs[from] < view.t0 && data.startNs[to] < view.t0) return 0;
  if (data.endNs[from] > view.t1 && data.startNs[to] > view.t1) return 0;
  const height = (row) => RULER_HEIGHT + rows[row].y - scroll + LANE_HEIGHT / 2;
  const begin = data.startNs[from] + data.dur[from] * data.unitNs;
  const [x0, y0, x1, y1] = [Math.max(gutter, x(begin)), height(a), Math.max(gutter, x(data.startNs[to])), height(b)];
  const bend = Math.max(12, Math.abs(x1 - x0) / 2);
  pen.strokeStyle = colour;
  pen.lineWidth = lineWidth;
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
  pen.stroke();
  pen.fillStyle = colour;
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x1 - 5, y1 - 3);
  pen.lineTo(x1 - 5, y1 + 3);
  pen.fill();
  return 1;
}
