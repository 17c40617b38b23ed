// The timeline: its state, and the actions that change it.

const SHORTEST_VIEW_NS = 20;

class TimelineWidget {
  constructor(data) {
    const byId = (id) => document.getElementById(id);
    this.data = data;
    this.box = byId("timeline-box");
    this.lanesBox = byId("timeline-lanes");
    this.space = byId("timeline-space");
    this.canvas = byId("timeline-canvas");
    this.tip = byId("timeline-tip");
    this.searchBox = byId("timeline-search");
    this.lanesOf = lanesByRank(this.data);
    this.open = openAtStart(this.data, this.lanesOf);
    this.view = { t0: data.originNs, t1: data.windowEndNs };
    Object.assign(this, { selected: -1, focusRow: -1, matches: null, found: [], matchAt: -1, showPath: true, showFlows: false, range: null, scroll: 0 });
    this.hasMeasured = data.lanes.some(([source]) => source === MEASURED);
    this.stepsOf = new Map();
    for (const mark of data.steps) {
      const key = `${mark[0]} ${mark[1]}`;
      if (!this.stepsOf.has(key)) this.stepsOf.set(key, []);
      this.stepsOf.get(key).push(mark);
    }
    this.steps = this.stepsOf.get(`${REPLAYED} ${data.detailed[0]}`) || [];
    this.box.hidden = false;
    byId("timeline-state").remove();
    this.colours = readColours(this.data);
    fillKey(this);
    this.layOut();
    describeSelection(this);
    this.showButtons();
    listenToTimeline(this);
  }

  layOut() {
    const made = makeRows(this.data, this.lanesOf, this.open);
    this.rows = made.rows;
    this.rowOfLane = new Map();
    this.rows.forEach((row, i) => {
      if (row.type === "lane" && !this.rowOfLane.has(row.lane)) this.rowOfLane.set(row.lane, i);
    });
    this.space.style.height = `${made.height + RULER_HEIGHT}px`;
    this.resize();
  }

  resize() {
    this.gutter = Math.min(230, Math.max(110, this.canvas.clientWidth * 0.2));
    this.height = Math.min(this.lanesBox.clientHeight, parseFloat(this.space.style.height));
    this.canvas.style.height = `${this.height}px`;
    this.redraw();
  }

  redraw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.scroll = this.lanesBox.scrollTop;
      drawTimeline(this);
    });
  }

  recolour() {
    this.colours = readColours(this.data);
    drawTimeline(this);
  }

  setView(t0, t1, { isLink = false } = {}) {
    const [low, high] = [this.data.originNs, this.data.windowEndNs];
    const span = Math.min(high - low, Math.max(SHORTEST_VIEW_NS, t1 - t0));
    t0 = Math.min(Math.max(low, t0), high - span);
    this.view = { t0, t1: t0 + span };
    this.redraw();
    if (!isLink) this.noteInAddress();
  }

  // The address follows the view, so that it can be copied.
  noteInAddress() {
    clearTimeout(this.noting);
    this.noting = setTimeout(() => {
      const chosen = this.selected >= 0 ? `&slice=${this.selected}` : "";
      history.replaceState(null, "", `#t=${Math.round(this.view.t0)}-${Math.round(this.view.t1)}${chosen}`);
    }, 250);
  }

  // Around the selection if it is in view, else around the middle.
  zoom(factor, atNs) {
    const { t0, t1 } = this.view;
    const chosen = this.selected >= 0 ? (this.data.startNs[this.selected] + this.data.endNs[this.selected]) / 2 : NaN;
    atNs ??= chosen >= t0 && chosen <= t1 ? chosen : (t0 + t1) / 2;
    this.setView(atNs - (atNs - t0) * factor, atNs + (t1 - atNs) * factor);
  }

  pan(share) {
    const span = this.view.t1 - this.view.t0;
    this.setView(this.view.t0 + share * span, this.view.t1 + share * span);
  }

  timeAt(x) {
    const width = this.canvas.clientWidth - this.gutter;
    return this.view.t0 + ((x - this.gutter) / width) * (this.view.t1 - this.view.t0);
  }

  hitAt(x, y) {
    if (y < RULER_HEIGHT) return {};
    const index = rowAt(this.rows, y - RULER_HEIGHT + this.lanesBox.scrollTop);
    const row = this.rows[index];
    if (!row || row.type !== "lane" || x < this.gutter) return { row, index };
    const ns = this.timeAt(x);
    const slack = (this.view.t1 - this.view.t0) / (this.canvas.clientWidth - this.gutter) * 2;
    const slice = sliceAfter(this.data, row.lane, ns - slack);
    const isHit = slice < this.data.firstOf[row.lane + 1] && this.data.startNs[slice] <= ns + slack;
    return { row, index, slice: isHit ? slice : -1 };
  }

  select(slice, { zoom = false, reveal = true } = {}) {
    this.selected = slice;
    if (slice >= 0) {
      if (reveal) this.reveal(slice, zoom);
      // Identical ranks share a lane: the focus stays on the row that was clicked.
      const lane = this.data.lane[slice];
      const index = this.rowOfLane.get(lane);
      if (index !== undefined && this.rows[this.focusRow]?.lane !== lane) this.focusRow = index;
    }
    describeSelection(this);
    this.redraw();
    this.noteInAddress();
  }

  // Opens the rank of a slice and moves the view to it.
  reveal(slice, zoom) {
    const lane = this.data.lane[slice];
    if (!this.rowOfLane.has(lane)) {
      this.open.add(this.data.lanes[lane][1]);
      this.layOut();
    }
    const index = this.rowOfLane.get(lane);
    if (index !== undefined) this.scrollTo(index);
    const [start, end] = [this.data.startNs[slice], this.data.endNs[slice]];
    if (zoom) {
      const margin = Math.max(SHORTEST_VIEW_NS, (end - start) * 0.6);
      this.setView(start - margin, end + margin);
    } else if (end < this.view.t0 || start > this.view.t1) {
      const half = (this.view.t1 - this.view.t0) / 2;
      this.setView((start + end) / 2 - half, (start + end) / 2 + half);
    }
  }

  scrollTo(index) {
    const row = this.rows[index];
    const [top, seen] = [this.lanesBox.scrollTop, this.height - RULER_HEIGHT];
    if (row.y < top) this.lanesBox.scrollTop = row.y;
    else if (row.y + row.height > top + seen) this.lanesBox.scrollTop = row.y + row.height - seen;
  }

  toggle(rank) {
    if (!this.open.delete(rank)) this.open.add(rank);
    this.layOut();
    this.showButtons();
  }

  showRanks(ranks, step) {
    for (const rank of ranks) this.open.add(rank);
    this.layOut();
    const index = this.rows.findIndex((row) => row.type === "rank" && ranks.includes(row.rank));
    if (index >= 0) this.lanesBox.scrollTop = this.rows[index].y;
    const mark = this.steps.find((one) => one[2] === step);
    if (mark) this.setView(mark[3], mark[4]);
    this.focusRow = index;
    this.box.scrollIntoView({ block: "start" });
    this.canvas.focus({ preventScroll: true });
    this.redraw();
  }

  goToStep(direction) {
    if (!this.steps.length) return;
    const middle = (this.view.t0 + this.view.t1) / 2;
    const isWhole = this.view.t1 - this.view.t0 >= this.data.windowEndNs - this.data.originNs - 1;
    let index = this.steps.findIndex((one) => one[4] > middle);
    if (index < 0) index = this.steps.length - 1;
    index = isWhole ? (direction > 0 ? 0 : this.steps.length - 1) : index + direction;
    const mark = this.steps[Math.min(this.steps.length - 1, Math.max(0, index))];
    this.setView(mark[3], mark[4]);
    say(`step ${mark[2]}`);
  }

  search(text) {
    const wanted = text.trim().toLowerCase();
    const output = document.getElementById("timeline-found");
    this.matchAt = -1;
    if (!wanted) {
      this.matches = null;
      this.found = [];
      output.textContent = "";
      this.redraw();
      return;
    }
    const rank = /^(rank|server) (\d+)$/.exec(wanted);
    if (rank && Number(rank[2]) < this.data.ranks.length) {
      this.matches = null;
      this.found = [];
      output.textContent = `rank ${rank[2]}`;
      const index = this.rows.findIndex((row) => row.type === "rank" && row.rank === Number(rank[2]));
      this.focusRow = index;
      this.lanesBox.scrollTop = this.rows[index].y;
      this.redraw();
      return;
    }
    const hits = this.data.names.map((name) => name.toLowerCase().includes(wanted));
    this.found = [];
    for (let i = 0; i < this.data.number; i++) {
      const isHit = (this.data.name[i] && hits[this.data.name[i] - 1]) || (this.data.layer[i] && hits[this.data.layer[i] - 1]);
      if (isHit) this.found.push(i);
    }
    this.matches = new Set(this.found);
    output.textContent = `${this.found.length.toLocaleString("en")} found`;
    this.redraw();
  }

  nextMatch(direction) {
    if (!this.found.length) return;
    this.matchAt = (this.matchAt + direction + this.found.length) % this.found.length;
    document.getElementById("timeline-found").textContent = `${this.matchAt + 1} of ${this.found.length.toLocaleString("en")}`;
    this.select(this.found[this.matchAt]);
  }

  moveRow(direction) {
    let index = this.focusRow < 0 ? (direction > 0 ? 0 : this.rows.length - 1) : this.focusRow + direction;
    index = Math.min(this.rows.length - 1, Math.max(0, index));
    this.focusRow = index;
    this.scrollTo(index);
    const row = this.rows[index];
    if (row.type !== "lane") {
      this.selected = -1;
      describeSelection(this);
      say(`${row.label}${row.canOpen ? (this.open.has(row.rank) ? ", open" : ", closed") : ""}`);
      this.redraw();
      return;
    }
    const middle = this.selected >= 0 ? this.data.startNs[this.selected] : (this.view.t0 + this.view.t1) / 2;
    const slice = Math.min(sliceAfter(this.data, row.lane, middle), this.data.firstOf[row.lane + 1] - 1);
    this.select(slice >= this.data.firstOf[row.lane] ? slice : -1);
    this.focusRow = index;
  }

  moveSlice(direction) {
    const row = this.rows[this.focusRow];
    if (this.selected < 0 && (!row || row.type !== "lane")) {
      this.pan(direction * 0.15);
      return;
    }
    const lane = this.selected >= 0 ? this.data.lane[this.selected] : row.lane;
    const from = this.selected >= 0 ? this.selected + direction : sliceAfter(this.data, lane, this.view.t0);
    if (from >= this.data.firstOf[lane] && from < this.data.firstOf[lane + 1]) this.select(from);
  }

  do(action) {
    const actions = {
      "zoom-in": () => this.zoom(0.5),
      "zoom-out": () => this.zoom(2),
      fit: () => this.setView(this.data.originNs, this.data.windowEndNs),
      "step-back": () => this.goToStep(-1),
      "step-on": () => this.goToStep(1),
      path: () => { this.showPath = !this.showPath; },
      flows: () => { this.showFlows = !this.showFlows; },
      expand: () => {
        const all = this.rows.filter((row) => row.type === "rank" && row.canOpen).map((row) => row.rank);
        this.open = this.open.size >= all.length ? new Set() : new Set(all);
        this.layOut();
      },
      help: () => { const help = document.getElementById("timeline-help"); help.hidden = !help.hidden; },
    };
    actions[action]();
    this.showButtons();
    this.redraw();
  }

  showButtons() {
    const pressed = (name, value) => this.box.querySelector(`[data-do="${name}"]`).setAttribute("aria-pressed", value);
    pressed("path", this.showPath);
    pressed("flows", this.showFlows);
    const all = this.rows.filter((row) => row.type === "rank" && row.canOpen).length;
    this.box.querySelector('[data-do="expand"]').textContent = this.open.size >= all ? "Close all" : "Open all";
    this.box.querySelector('[data-do="help"]').setAttribute("aria-expanded", !document.getElementById("timeline-help").hidden);
  }

  // `#t=START-END&slice=N`, in ns.
  follow(hash) {
    const found = /^#t=(\d+)(?:-(\d+))?(?:&slice=(\d+))?$/.exec(hash);
    if (!found) return false;
    const start = Number(found[1]);
    const span = this.data.windowEndNs - this.data.originNs;
    const [t0, t1] = found[2] ? [start, Number(found[2])] : [start - span / 20, start + span / 20];
    this.setView(t0, Math.max(t0 + 1, t1), { isLink: true });
    if (found[3] && Number(found[3]) < this.data.number) {
      this.selected = Number(found[3]);
      this.reveal(this.selected, false);
      describeSelection(this);
    }
    this.box.scrollIntoView({ block: "start" });
    return true;
  }
}
