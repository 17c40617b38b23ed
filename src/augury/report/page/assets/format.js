// Formats as `core/units.py` does: three significant digits and a readable unit.

const threeDigits = (value) =>
  Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));

function formatScaled(value, units, smallest) {
  for (const [unit, scale] of units) {
    if (Math.abs(value) >= scale) return `${threeDigits(value / scale)} ${unit}`;
  }
  return `${Math.round(value)} ${smallest}`;
}

const formatNs = (ns) => formatScaled(ns, [["s", 1e9], ["ms", 1e6], ["us", 1e3]], "ns");
const formatBytes = (bytes) =>
  formatScaled(bytes, [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]], "B");
function formatUnit(value, unit) {
  if (unit === "bytes") return formatBytes(value);
  if (unit === "ns") return formatNs(value);
  return unit === "%" ? `${threeDigits(value)} %` : threeDigits(value);
}

// A time of an axis, precise enough to tell its ticks apart.
function formatTick(ns, spacingNs) {
  const units = [["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]];
  const [unit, scale] = units.find(([, size]) => Math.max(Math.abs(ns), spacingNs) >= size) || units[3];
  const spacing = spacingNs / scale;
  const isExact = (digits) => Math.abs(spacing - Number(spacing.toFixed(digits))) < 1e-9 * spacing;
  const digits = [0, 1, 2, 3, 4, 5].find(isExact) ?? 6;
  return `${(ns / scale).toFixed(digits)} ${unit}`;
}

const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function say(text) {
  document.getElementById("said").textContent = text;
}
