//! Plans of fits of a whole brain on cards of several sizes.
#![allow(clippy::unwrap_used)]

use super::*;

fn whole_brain() -> StreamShape {
    StreamShape {
        n_samples: 69_202,
        n_features: 16_384,
        n_targets: 264_805,
        block: 2048,
        n_alphas: 11,
        n_held_out: 1000,
        folds: FoldSizes::default(),
        number_bytes: 4,
    }
}

fn rates(memory: u64) -> CardRates {
    CardRates {
        products: 5e13,
        eigen: 20.0 / 16_384f64.powi(3),
        copies: 2e10,
        targets: 5e9,
        taken: 5e9,
        memory,
        limit: u64::MAX,
        eigen_workspace: 5 << 30,
    }
}

#[test]
fn a_whole_brain_fits_a_card_of_80_gb_and_is_read_once() {
    let plan = whole_brain().plan(&rates(78 << 30)).unwrap();
    assert!(plan.keeps_products && plan.peak() < 78 << 30, "{plan}");
    // What no plan can be below: the products that are kept.
    assert!(plan.peak() > 8 * 16_384 * 264_805);
    assert_eq!(plan.read, 4 * (69_202 + 1000) * 264_805);
    assert!(plan.seconds() > 24.0 && plan.seconds() < 120.0, "{plan}");
    assert!(plan.to_string().contains("read once"));
}

#[test]
fn folds_cost_decompositions_of_their_own() {
    let folds = FoldSizes { count: 5, out: 69_202, largest: 13_841 };
    let of_folds = StreamShape { folds, ..whole_brain() };
    let [whole, plan] = [whole_brain(), of_folds].map(|shape| shape.plan(&rates(139 << 30)).unwrap());
    // Two squares and the rows a fold, which stay.
    let more = 8 * 16_384 * (2 * 5 * 16_384 + 69_202);
    assert!(plan.keeps_products && plan.peak() > more && plan.peak() < whole.peak() + more, "{plan}");
    assert!(plan.steps[0].1 > 5.0 * 20.0 + whole.steps[0].1, "{plan}");
    // Without the folds it fits, with targets that are read twice.
    let loo = StreamShape { folds: FoldSizes::default(), ..of_folds };
    assert!(loo.plan(&rates(38 << 30)).is_ok());
    let refused = of_folds.plan(&rates(38 << 30)).unwrap_err().to_string();
    assert!(refused.contains("5 folds") && refused.contains("cv => 2 would fit"), "{refused}");
    let contiguous = crate::Folds::contiguous(11, 3).unwrap();
    let sizes = FoldSizes::of(&CrossValidation::Folds(contiguous));
    assert_eq!(sizes, FoldSizes { count: 3, out: 11, largest: 4 });
    assert_eq!(FoldSizes::of(&CrossValidation::LeaveOneOut), FoldSizes::default());
}

#[test]
fn a_smaller_card_reads_twice_and_a_tiny_one_is_told_what_would_fit() {
    let limited = CardRates { limit: 40 << 30, ..rates(78 << 30) };
    assert!(!whole_brain().plan(&limited).unwrap().keeps_products);
    let plan = whole_brain().plan(&rates(40 << 30)).unwrap();
    assert!(!plan.keeps_products && plan.read > 2 * 4 * 69_202 * 264_805, "{plan}");
    let large = StreamShape { block: 65_536, ..whole_brain() };
    let refused = large.plan(&rates(40 << 30)).unwrap_err().to_string();
    assert!(refused.contains("a block of 8192 targets would fit"), "{refused}");
    let refused = whole_brain().plan(&rates(8 << 30)).unwrap_err().to_string();
    assert!(refused.contains("4096 features in blocks of 256"), "{refused}");
    // Nothing helps if the features alone are too many samples.
    let long = StreamShape { n_samples: 1 << 34, n_features: 64, ..whole_brain() };
    let refused = long.plan(&rates(8 << 30)).unwrap_err().to_string();
    assert!(refused.contains("use fewer samples, or device => 'cpu'"), "{refused}");
}
