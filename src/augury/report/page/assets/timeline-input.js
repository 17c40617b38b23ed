// What keyboard and mouse do to the timeline.

function pressKey(widget, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const keys = {
    w: () => widget.zoom(0.6), "+": () => widget.zoom(0.6), "=": () => widget.zoom(0.6),
    s: () => widget.zoom(1 / 0.6), "-": () => widget.zoom(1 / 0.6),
    a: () => widget.pan(-0.2), d: () => widget.pan(0.2), 0: () => widget.do("fit"),
    ArrowLeft: () => widget.moveSlice(-1), ArrowRight: () => widget.moveSlice(1),
    ArrowUp: () => widget.moveRow(-1), ArrowDown: () => widget.moveRow(1),
    "[": () => widget.do("step-back"), "]": () => widget.do("step-on"),
    c: () => widget.do("path"), f: () => widget.do("flows"), e: () => widget.do("expand"), "?": () => widget.do("help"),
    "/": () => widget.searchBox.focus(), n: () => widget.nextMatch(1), N: () => widget.nextMatch(-1),
    Enter: () => { if (widget.selected >= 0) widget.select(widget.selected, { zoom: true }); },
    " ": () => { const row = widget.rows[widget.focusRow]; if (row && row.rank >= 0) widget.toggle(row.rank); },
    Escape: () => widget.select(-1),
  };
  if (!Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key]();
}

function listenToTimeline(widget) {
  const { canvas } = widget;
  canvas.addEventListener("keydown", (event) => pressKey(widget, event));
  widget.lanesBox.addEventListener("scroll", () => widget.redraw());
  new ResizeObserver(() => widget.resize()).observe(widget.lanesBox);
  widget.box.addEventListener("click", (event) => {
    const button = event.target.closest("[data-do]");
    if (button) widget.do(button.dataset.do);
  });
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      widget.zoom(Math.exp(event.deltaY * 0.002), widget.timeAt(event.offsetX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      widget.pan((event.deltaX || event.deltaY) / 1000);
    }
  }, { passive: false });
  listenToPointer(widget);
  widget.searchBox.addEventListener("input", () => widget.search(widget.searchBox.value));
  widget.searchBox.addEventListener("keydown", (event) => {
    if (event.key === "Enter") widget.nextMatch(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") { widget.searchBox.value = ""; widget.search(""); canvas.focus(); }
  });
  for (const type of ["beforeprint", "afterprint"]) {
    window.addEventListener(type, () => { widget.resize(); widget.recolour(); });
  }
}

function listenToPointer(widget) {
  const { canvas } = widget;
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    drag = { x: event.offsetX, y: event.offsetY, view: { ...widget.view }, isRange: event.shiftKey, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) {
      hoverAt(widget, event);
      return;
    }
    const distance = event.offsetX - drag.x;
    drag.moved ||= Math.abs(distance) > 3;
    if (!drag.moved) return;
    widget.tip.hidden = true;
    if (drag.isRange) {
      widget.range = [drag.x, event.offsetX];
      widget.redraw();
      return;
    }
    const ns = (distance / (canvas.clientWidth - widget.gutter)) * (drag.view.t1 - drag.view.t0);
    widget.setView(drag.view.t0 - ns, drag.view.t1 - ns);
  });
  const end = (event) => {
    if (!drag) return;
    const { moved, isRange, x } = drag;
    drag = null;
    if (isRange && moved) {
      const [a, b] = [widget.timeAt(x), widget.timeAt(event.offsetX)];
      widget.range = null;
      widget.setView(Math.min(a, b), Math.max(a, b));
    } else if (!moved) {
      clickAt(widget, event);
    }
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", () => { drag = null; widget.range = null; widget.redraw(); });
  canvas.addEventListener("pointerleave", () => { widget.tip.hidden = true; });
  canvas.addEventListener("dblclick", (event) => {
    const { slice } = widget.hitAt(event.offsetX, event.offsetY);
    if (slice >= 0) widget.select(slice, { zoom: true });
  });
}

function clickAt(widget, event) {
  const { row, index, slice } = widget.hitAt(event.offsetX, event.offsetY);
  if (!row) return;
  widget.focusRow = index;
  if (row.type === "rank") {
    if (row.canOpen) widget.toggle(row.rank);
    else say(`${row.label}: only a summary is in this page`);
    return;
  }
  widget.select(slice ?? -1, { reveal: false });
}

function hoverAt(widget, event) {
  const { row, slice } = widget.hitAt(event.offsetX, event.offsetY);
  const canOpen = row && row.type === "rank" && row.canOpen;
  widget.canvas.style.cursor = slice >= 0 || canOpen ? "pointer" : "default";
  if (!(slice >= 0)) {
    widget.tip.hidden = true;
    return;
  }
  const one = describeSlice(widget.data, slice);
  const name = one.count > 1 ? `${one.count} short operations` : one.name;
  widget.tip.textContent = `${name}${one.layer ? ` · ${one.layer}` : ""} · ${formatNs(one.durNs)}${one.waitNs ? `, of this waiting ${formatNs(one.waitNs)}` : ""}`;
  widget.tip.hidden = false;
  const frame = widget.box.getBoundingClientRect();
  const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
  widget.tip.style.left = `${Math.max(4, Math.min(x + 12, frame.width - widget.tip.offsetWidth - 8))}px`;
  widget.tip.style.top = `${y + 16}px`;
}
