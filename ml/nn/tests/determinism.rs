//! Gradients do not depend on the number of threads, down to the last bit.
#![allow(clippy::unwrap_used)]

use voxelflow_nn::{DistDcaConfig, Objective, device, models::dist_dca::DcaObjective};

#[test]
fn equal_bytes_whatever_the_number_of_threads() {
    let architecture = DistDcaConfig::default().architecture(60).unwrap();
    // Two pieces, and groups of samples that are not whole.
    let series: Vec<f32> = (0..75 * 60).map(|i| (i as f32 * 0.37).sin() + (i as f32 * 0.011).cos()).collect();
    let with_threads = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut objective = DcaObjective::new(&architecture, &device("cpu").unwrap());
            let parameters = objective.layout().initial(4);
            let mut gradient = vec![0f32; parameters.len()];
            let loss = objective.gradient(&parameters, &series, &mut gradient).unwrap();
            (loss.to_bits(), gradient.iter().map(|g| g.to_bits()).collect::<Vec<_>>())
        })
    };
    let one = with_threads(1);
    assert!(f64::from_bits(one.0) > 0.0 && one.1.iter().any(|g| *g != 0));
    assert_eq!(one, with_threads(3));
    assert_eq!(one, with_threads(4));
}
