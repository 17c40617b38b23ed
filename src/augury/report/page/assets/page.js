// Starts the parts of a page that it has: tables, charts, the timeline, theme and links.

// The system's theme until the reader chooses one.
function startTheme(onChange) {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let isChosen = false;
  const show = (theme) => {
    root.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    onChange();
  };
  button.addEventListener("click", () => {
    isChosen = true;
    show(root.dataset.theme === "dark" ? "light" : "dark");
  });
  dark.addEventListener("change", () => {
    if (!isChosen) show(dark.matches ? "dark" : "light");
  });
  // Paper is white.
  let before = "light";
  window.addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    show("light");
  });
  window.addEventListener("afterprint", () => show(before));
  show(dark.matches ? "dark" : "light");
}

// On paper, closed parts of the sections cannot be opened.
function startPrinting() {
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("main details:not([open])")];
    for (const part of opened) part.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const part of opened) part.open = false;
  });
}

function startContents() {
  const links = new Map([...document.querySelectorAll(".top nav a")].map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-15% 0px -75% 0px" });
  for (const section of document.querySelectorAll("main > section")) seen.observe(section);
}

async function startTimeline() {
  const packed = document.getElementById("timeline-data");
  if (!packed) return null;
  const state = document.getElementById("timeline-state");
  if (typeof DecompressionStream === "undefined") {
    state.textContent = "This browser is too old for the timeline; the table below has the critical path.";
    return null;
  }
  state.textContent = "Reading the timeline ...";
  const data = await unpackTimeline(packed.textContent);
  return new TimelineWidget(data);
}

async function startPage() {
  const data = JSON.parse(document.getElementById("page-data").textContent);
  let timeline = null;
  startTheme(() => {
    redrawCharts();
    timeline?.recolour();
  });
  startTables(data.tables);
  startContents();
  startPrinting();
  document.addEventListener("click", (event) => {
    const copy = event.target.closest("[data-copy]");
    if (copy) navigator.clipboard?.writeText(copy.dataset.copy).then(() => say("copied"), () => say("cannot copy"));
    const show = event.target.closest(".show");
    if (show && timeline) {
      const ranks = show.dataset.ranks ? show.dataset.ranks.split(",").map(Number) : [];
      timeline.showRanks(ranks.length ? ranks : [0], show.dataset.step ? Number(show.dataset.step) : -1);
    }
  });
  startCharts(data.charts);
  timeline = await startTimeline();
  timeline?.follow(location.hash);
  window.addEventListener("hashchange", () => timeline?.follow(location.hash));
  document.documentElement.dataset.ready = "yes";
}

startPage();
