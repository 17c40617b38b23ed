// Rows of the timeline: the critical path, a row per rank, and the lanes of open ranks.

const LANE_HEIGHT = 17;
const RANK_HEIGHT = 22;
const RULER_HEIGHT = 24;
const MAX_OPEN_AT_START = 4;

// Measured and replayed lanes of the same stream stand one above the other.
function lanesByRank(data) {
  const found = new Map();
  data.lanes.forEach(([source, rank, name], lane) => {
    if (source === PATH) return;
    const stream = name.replace(/^communication, /, "").replace(/ #\d+$/, "").replace(/, level \d+$/, "");
    if (!found.has(rank)) found.set(rank, new Map());
    const streams = found.get(rank);
    if (!streams.has(stream)) streams.set(stream, []);
    streams.get(stream).push(lane);
  });
  const rank = new Map();
  for (const [number, streams] of found) rank.set(number, [...streams.values()].flat());
  return rank;
}

function makeRows(data, lanesOf, open) {
  const rows = [];
  let y = 0;
  const add = (row, height) => {
    rows.push({ ...row, y, height });
    y += height;
  };
  data.lanes.forEach(([source], lane) => {
    if (source === PATH) add({ type: "lane", lane, label: "critical path", rank: -1 }, LANE_HEIGHT + 5);
  });
  data.ranks.forEach(([role, host, place], rank) => {
    const twin = data.classes[place];
    const lanes = lanesOf.get(twin) || [];
    const label = `${role === "server" ? "server" : "rank"} ${rank}${host ? `, ${host}` : ""}`;
    add({ type: "rank", rank, place, label, canOpen: lanes.length > 0 }, RANK_HEIGHT);
    if (!open.has(rank)) return;
    for (const lane of lanes) {
      const [source, , name] = data.lanes[lane];
      // Enclosed events stand below the events that enclose them.
      add({ type: "lane", lane, rank, label: name.replace(/^.*, level (\d+.*)$/, "   level $1"), source }, LANE_HEIGHT);
    }
  });
  const shared = lanesOf.get(-1) || [];
  if (shared.length) {
    add({ type: "title", label: "shared", rank: -1 }, RANK_HEIGHT);
    for (const lane of shared) {
      add({ type: "lane", lane, rank: -1, label: data.lanes[lane][2], source: REPLAYED }, LANE_HEIGHT);
    }
  }
  return { rows, height: y };
}

// Few ranks are all open; of many, the one with most of the critical path and the first other one.
function openAtStart(data, lanesOf) {
  const ranks = data.ranks.map((_, rank) => rank).filter((rank) => lanesOf.has(data.classes[data.ranks[rank][2]]));
  if (ranks.length <= MAX_OPEN_AT_START) return new Set(ranks);
  const critical = new Map();
  for (let i = 0; i < data.number; i++) {
    const [source, rank] = data.lanes[data.lane[i]];
    if (source === REPLAYED && data.look[i] >> 8 & 255) critical.set(rank, (critical.get(rank) || 0) + data.dur[i]);
  }
  const ordered = [...critical.keys()].sort((a, b) => critical.get(b) - critical.get(a));
  return new Set([...ordered, ...ranks].filter((rank) => rank >= 0).filter((rank, i, all) => all.indexOf(rank) === i).slice(0, 2));
}

// The row at a height; rows are sorted, so bisection finds it.
function rowAt(rows, y) {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].y + rows[middle].height <= y) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The first slice of a lane that ends after a time.
function sliceAfter(data, lane, ns) {
  let low = data.firstOf[lane];
  let high = data.firstOf[lane + 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (data.endNs[middle] <= ns) low = middle + 1;
    else high = middle;
  }
  return low;
}
