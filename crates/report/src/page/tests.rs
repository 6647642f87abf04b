use super::*;

fn page() -> Page {
    let cell = Cell(vec![("17".to_owned(), Some(RunId(0))), ("1".to_owned(), Some(RunId(1)))]);
    let lines =
        vec![Line { name: "arm64 <a>".to_owned(), points: vec![Some([1.0, 2.0, 3.0]), None] }];
    let heights = vec![vec![vec![1.0, 2.0], vec![0.0, 3.0]]; 2];
    let names = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
    let stacks = PlotKind::Stacks {
        parts: names(&["loads", "stores"]),
        bars: names(&["before", "after"]),
        heights,
    };
    let plot = |kind| Plot {
        caption: "Time".to_owned(),
        unit: "µs".to_owned(),
        x: names(&["4K", "64K"]),
        kind,
    };
    Page {
        title: "munmap & co".to_owned(),
        lead: "What it costs.".to_owned(),
        findings: vec!["17 become 1.".to_owned()],
        sections: vec![Section {
            title: String::new(),
            tables: vec![Grid {
                caption: "Flushes".to_owned(),
                head: names(&["folio", "TLBI"]),
                rows: vec![vec![Cell::text("64K"), cell]],
            }],
            plots: vec![plot(PlotKind::Lines(lines)), plot(stacks)],
        }],
        fidelity: vec![("contention".to_owned(), "locks are free".to_owned())],
        runs: vec![
            Run {
                name: "vanilla".to_owned(),
                counts: vec![("pte_read".to_owned(), 1234)],
                ..Run::default()
            },
            Run {
                name: "batched".to_owned(),
                failure: Some("no luck".to_owned()),
                ..Run::default()
            },
        ],
        provenance: Vec::new(),
    }
}

#[test]
fn terminals_get_prose_tables_and_failures() {
    let expected = "munmap & co. What it costs.\n\nFlushes\n  folio    TLBI\n  ─────────────\n  64K    17 → 1\n\n\
                    17 become 1.\nFAILED: batched: no luck\n";
    assert_eq!(page().text(80), expected);
}

#[test]
fn browsers_get_one_file_whose_numbers_link_to_runs() {
    let html = page().html();
    for part in [
        "<title>munmap &amp; co</title>",
        "<a href=\"#r0\">17</a> → <a href=\"#r1\">1</a>",
        "<details id=\"r0\"><summary>vanilla</summary>",
        "<code>pte_read</code> 1,234",
        "arm64 &lt;a&gt;",
        "Failed: <a href=\"#r1\">batched</a>: no luck",
        "prefers-color-scheme: dark",
        "locks are free",
    ] {
        assert!(html.contains(part), "no {part} in {html}");
    }
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        let found = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!found.contains(outside), "{outside} leads out of the page");
    }
    assert_eq!(html, page().html());
}

#[test]
fn plots_take_their_colours_from_the_page() {
    let html = page().html();
    let svg = &html[html.find("<svg").expect("a plot")..html.rfind("</svg>").expect("a plot")];
    assert_eq!(html.matches("<svg").count(), 2);
    assert!(svg.contains("var(--c0)") && svg.contains("var(--c1)") && svg.contains("var(--ink)"));
    let fixed = svg.matches("#0102").count();
    assert_eq!(fixed, 0, "a colour of the drawing was left: {svg}");
    assert!(svg.contains("64K"), "{svg}");
}
