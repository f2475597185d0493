//! The report as text: what is escaped, what is said when there is nothing, what it refers to.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod sample;

use voxelflow_report::{Convention, MapSection, ModelSection, Report, StatementRow};

#[test]
fn names_are_text_whatever_they_hold() {
    let html = sample::report().to_html().unwrap();
    assert!(html.contains("maps/&lt;script&gt;document.title"));
    assert!(!html.contains("<script>document"));

    let hostile = "\"><img src=x onerror=alert(1)>";
    let mut report = Report::new(hostile, hostile, hostile);
    report.pipeline_text = Some(format!("</code></pre>{hostile}"));
    report.statements.push(StatementRow::ran(hostile, 1.0, None));
    let mut model = sample::report().models.remove(0);
    model.name = hostile.into();
    model.settings.push((hostile.into(), hostile.into()));
    model.reconstructions[0].label = hostile.into();
    model.filters[0].layer = hostile.into();
    report.models.push(model);
    let mut map = sample::report().maps.remove(1).described(hostile);
    map.name = hostile.into();
    map.unit = hostile.into();
    report.maps.push(map);
    let html = report.to_html().unwrap();
    assert!(!html.contains("<img src=x"), "something was not escaped");
    let escaped = html.matches("&lt;img src=x onerror").count();
    assert_eq!(html.matches("onerror").count(), escaped);
    assert!(escaped > 12, "{escaped}");
}

#[test]
fn an_empty_report_says_that_it_is_empty() {
    let html = Report::new("Nothing", "", "0.1.0").to_html().unwrap();
    for text in ["No statement was run", "Nothing to report", "No model was trained", "No map was made"] {
        assert!(html.contains(text), "{text}");
    }
}

#[test]
fn a_model_without_history_is_stated() {
    let mut report = Report::default();
    report.models.push(ModelSection { name: "fresh".into(), ..ModelSection::default() });
    let html = report.to_html().unwrap();
    assert!(html.contains("no training is recorded") && html.contains("No round and no epoch is recorded"));
}

#[test]
fn what_was_chosen_is_shown_instead_of_losses() {
    let html = sample::report().to_html().unwrap();
    let model = html.split("id=\"model-2\"").nth(1).unwrap().split("</section>").next().unwrap();
    assert!(model.contains("penalty 1000, of a mean R² of 0.031 by cross-validation"), "{model}");
    assert!(model.contains("aria-label=\"Score by penalty\"") && model.contains("chosen: 1000"));
    for loss in ["mean loss", "Loss by epoch", "before training"] {
        assert!(!model.contains(loss), "{loss}");
    }
}

#[test]
fn a_map_without_a_value_is_stated_not_drawn() {
    for value in [f32::NAN, f32::INFINITY, 0.0] {
        let mut report = Report::default();
        report.maps.push(MapSection::statistic("void", "r", sample::volume(|_, _, _| value), None));
        let html = report.to_html().unwrap();
        assert!(html.contains("Nothing to draw") && !html.contains("<svg"), "{value}");
    }
    let mut report = Report::default();
    report.maps.push(MapSection::image("void", "", sample::volume(|_, _, _| f32::NAN)));
    assert!(report.to_html().unwrap().contains("Nothing to draw"));
}

#[test]
fn a_threshold_above_all_values_still_draws_the_brain() {
    let mut report = sample::report();
    let map = report.maps.remove(1).thresholded(9.0);
    report.maps = vec![map];
    let html = report.to_html().unwrap();
    assert!(html.contains("|value| ≥ 9 (0 voxels)") && html.contains("data:image/png"));
}

#[test]
fn a_background_without_values_does_not_stop_the_map() {
    let mut report = sample::report();
    let mut map = report.maps.remove(1);
    map.background.as_mut().unwrap().values.fill(f32::NAN);
    report.maps = vec![map];
    assert!(report.to_html().unwrap().contains("<image"));
}

#[test]
fn the_page_loads_nothing() {
    let html = sample::report().to_html().unwrap();
    assert!(html.contains("default-src 'none'"));
    let page = html.replace("http://www.w3.org/2000/svg", "");
    for reference in ["http://", "https://", "src=\"/", "@import", "<link"] {
        assert!(!page.contains(reference), "{reference}");
    }
}

#[test]
fn the_convention_is_stated() {
    let mut report = sample::report();
    assert!(report.to_html().unwrap().contains("patient's left (L) is shown left"));
    report.convention = Convention::Radiological;
    let html = report.to_html().unwrap();
    assert!(html.contains("patient's left (L) is shown right") && html.contains("data-mirror"));
}

#[test]
fn every_entry_of_the_contents_leads_somewhere() {
    let html = sample::report().to_html().unwrap();
    let targets: Vec<&str> =
        html.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(targets.len() >= 9, "{targets:?}");
    for target in targets {
        assert!(html.contains(&format!("id=\"{target}\"")), "{target}");
    }
}
