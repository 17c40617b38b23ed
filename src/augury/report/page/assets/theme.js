// Runs before the page is drawn, so that a dark page does not begin light.

if (window.matchMedia("(prefers-color-scheme: dark)").matches) {
  document.documentElement.dataset.theme = "dark";
}
