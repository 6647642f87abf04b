#!/usr/bin/env python3
"""Renders a page in headless Chromium, in both themes and two widths, and checks what can be checked without eyes.

Usage: check_page.py PAGE.html DIR. Pictures are left in DIR to be looked at. Nothing may be wider than the window, no
label of a plot may be cut off or lie on another, and the two themes must differ.
"""
import os
import re
import shutil
import subprocess
import sys

WIDTHS = {"phone": 500, "desktop": 1280}
THEMES = {"light": 1, "dark": 0}
# Runs in the page: says what is wrong with it in an attribute of its root.
PROBE = """<script>addEventListener('load', () => {
  const wrong = [];
  if (document.documentElement.scrollWidth > innerWidth) wrong.push('the page is wider than the window');
  for (const svg of document.querySelectorAll('svg')) {
    const box = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll('text')].map(t => [t.textContent.trim(), t.getBoundingClientRect()]);
    for (const [text, t] of texts)
      if (t.left < box.left - 1 || t.right > box.right + 1 || t.top < box.top - 1 || t.bottom > box.bottom + 1) wrong.push('cut off: ' + text);
    for (let i = 0; i < texts.length; i++) for (let j = 0; j < i; j++) {
      const [a, b] = [texts[i][1], texts[j][1]];
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2)
        wrong.push('on each other: ' + texts[i][0] + ' and ' + texts[j][0]);
    }
  }
  for (const a of document.querySelectorAll('a[href^="#"]'))
    if (!document.getElementById(a.getAttribute('href').slice(1))) wrong.push('a link leads nowhere: ' + a.textContent);
  document.documentElement.dataset.plots = document.querySelectorAll('svg').length;
  document.documentElement.dataset.wrong = wrong.slice(0, 5).join('; ');
});</script>"""


def chromium(browser, page, width, theme, *what):
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=2000",
               f"--blink-settings=preferredColorScheme={THEMES[theme]}", f"--window-size={WIDTHS[width]},2600", *what, f"file://{page}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def main():
    page, out = sys.argv[1:3]
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        print("SKIPPED: there is no Chromium to render the page")
        return
    os.makedirs(out, exist_ok=True)
    probed = os.path.abspath(os.path.join(out, "probed.html"))
    with open(page) as source, open(probed, "w") as target:
        target.write(source.read().replace("</html>", PROBE + "</html>"))
    pictures = {}
    for width in WIDTHS:
        for theme in THEMES:
            dom = chromium(browser, probed, width, theme, "--dump-dom")
            found = re.search(r'<html[^>]*data-plots="(\d+)"[^>]*data-wrong="([^"]*)"', dom)
            if not found or int(found[1]) == 0:
                sys.exit(f"check_page: {page} has no plots in {width}, {theme}")
            if found[2]:
                sys.exit(f"check_page: {page}, {width}, {theme}: {found[2]}")
            picture = os.path.abspath(os.path.join(out, f"{width}-{theme}.png"))
            chromium(browser, os.path.abspath(page), width, theme, f"--screenshot={picture}")
            pictures[width, theme] = open(picture, "rb").read()
            print(f"{picture}: {len(pictures[width, theme])} bytes, {found[1]} plots")
    if any(pictures[width, "light"] == pictures[width, "dark"] for width in WIDTHS):
        sys.exit("check_page: the themes look alike")


main()
