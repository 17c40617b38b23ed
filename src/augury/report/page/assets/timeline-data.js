// Unpacks the timeline that `timeline/pack.py` packed.

const [PATH, MEASURED, REPLAYED] = [0, 1, 2];

async function unpackTimeline(text) {
  const packed = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const headerBytes = new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + headerBytes)));
  let at = 4 + headerBytes;
  const columns = {};
  for (const [name, length] of header.columns) {
    const column = (columns[name] = new Uint32Array(length));
    for (let i = 0; i < length; i++) {
      const high = bytes[at + 2 * length + i] << 16 | bytes[at + 3 * length + i] << 24;
      column[i] = (bytes[at + i] | bytes[at + length + i] << 8 | high) >>> 0;
    }
    at += 4 * length;
  }
  for (const name of ["lane", "start"]) {
    const column = columns[name];
    for (let i = 1; i < column.length; i++) column[i] = (column[i] + column[i - 1]) >>> 0;
  }
  return { ...header, ...columns, strips: bytes.subarray(at), ...derived(header, columns) };
}

// Times in ns, the rows of each lane, and the flows of each slice.
function derived(header, columns) {
  const number = columns.lane.length;
  const startNs = new Float64Array(number);
  const endNs = new Float64Array(number);
  const firstOf = new Uint32Array(header.lanes.length + 1).fill(number);
  for (let i = number - 1; i >= 0; i--) {
    startNs[i] = columns.start[i] * header.unitNs + header.originNs;
    endNs[i] = startNs[i] + columns.dur[i] * header.unitNs;
    firstOf[columns.lane[i]] = i;
  }
  for (let lane = header.lanes.length - 1; lane >= 0; lane--) {
    firstOf[lane] = Math.min(firstOf[lane], firstOf[lane + 1]);
  }
  const flowsOf = new Map();
  const add = (slice, flow) => flowsOf.has(slice) ? flowsOf.get(slice).push(flow) : flowsOf.set(slice, [flow]);
  for (let i = 0; i < columns.flowFrom.length; i++) {
    add(columns.flowFrom[i], i);
    add(columns.flowTo[i], i);
  }
  return { startNs, endNs, firstOf, flowsOf, number };
}

// What is known about one slice.
function describeSlice(data, i) {
  const [source, laneRank, laneName] = data.lanes[data.lane[i]];
  const look = data.look[i];
  return {
    name: data.name[i] ? data.names[data.name[i] - 1] : "(no name)",
    layer: data.layer[i] ? data.names[data.layer[i] - 1] : "",
    kind: data.colours[look & 255],
    isCritical: Boolean(look >> 8 & 255),
    reason: source === PATH ? data.reasons[look >> 16 & 255] : "",
    step: data.step[i] - 1,
    startNs: data.startNs[i],
    durNs: data.dur[i] * data.unitNs,
    waitNs: data.wait[i] * data.unitNs,
    sizeBytes: data.sizeHigh[i] * 2 ** 32 + data.sizeLow[i],
    count: data.count[i],
    source, laneRank, laneName,
  };
}
