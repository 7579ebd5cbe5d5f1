// Sets the theme before the first paint. A classic script: a module runs later, and the page would flash.
(function () {
  "use strict";
  var theme = null;
  try {
    theme = localStorage.getItem("kourou.theme");
  } catch (refused) {
    // Storage may be switched off in the browser: the theme follows the system then.
  }
  if (theme !== "light" && theme !== "dark") {
    theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }
  document.documentElement.dataset.theme = theme;
})();
