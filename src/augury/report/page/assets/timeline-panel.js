// The colours of the timeline in words, and the facts about the selected slice.

function fillKey(widget) {
  const used = new Set();
  for (let i = 0; i < widget.data.number; i++) used.add(widget.data.look[i] & 255);
  const list = document.getElementById("timeline-key");
  widget.data.colours.forEach((name, i) => {
    if (!used.has(i)) return;
    const item = element("li");
    const swatch = document.createElementNS(SVG, "svg");
    swatch.setAttribute("class", "swatch");
    swatch.setAttribute("viewBox", "0 0 10 10");
    const rect = document.createElementNS(SVG, "rect");
    rect.setAttribute("class", name);
    rect.setAttribute("width", 10);
    rect.setAttribute("height", 10);
    swatch.append(rect);
    item.append(swatch, name);
    list.append(item);
  });
  list.append(element("li", "pale: waits for the last rank"), element("li", "underlined: critical path"));
}

function describeSelection(widget) {
  const panel = document.getElementById("timeline-selected");
  panel.replaceChildren();
  if (widget.selected < 0) {
    panel.append(element("p", "Nothing is selected.", "note"));
    return;
  }
  const data = widget.data;
  const one = describeSlice(data, widget.selected);
  const row = widget.rows[widget.focusRow];
  const rank = row?.lane === data.lane[widget.selected] ? row.rank : one.laneRank;
  panel.append(element("h3", one.count > 1 ? `${one.count} short operations, from ${one.name}` : one.name));
  const facts = [
    ["kind", one.kind], ["layer", one.layer], ["rank", rank >= 0 ? String(rank) : ""],
    ["lane", one.laneName], ["source", ["critical path", "measured", "replayed"][one.source]],
    ["step", one.step >= 0 ? String(one.step) : ""], ["start", formatNs(one.startNs)],
    ["duration", formatNs(one.durNs)], ["of this waiting", one.waitNs ? formatNs(one.waitNs) : ""],
    ["size", one.sizeBytes ? formatBytes(one.sizeBytes) : ""], ["critical", one.isCritical && one.source === REPLAYED ? "yes" : ""],
    ["started after", one.reason],
  ];
  const list = element("dl");
  for (const [name, value] of facts) {
    if (!value) continue;
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    list.append(pair);
  }
  panel.append(list);
  for (const flow of (data.flowsOf.get(widget.selected) || []).slice(0, 8)) {
    const isSource = data.flowFrom[flow] === widget.selected;
    const other = isSource ? data.flowTo[flow] : data.flowFrom[flow];
    const { name, laneRank } = describeSlice(data, other);
    const jump = element("button", `${isSource ? "then" : "after"}: ${name}${laneRank >= 0 ? ` (rank ${laneRank})` : ""}`);
    jump.type = "button";
    jump.addEventListener("click", () => widget.select(other));
    panel.append(jump);
  }
}
