//! The two fully connected layers between Z and Z′, for all samples of a piece at once.

use super::{convolutions::Place, shapes::Shapes};
use crate::kernels::{dense::Columns, real::Real, tile::PANEL};

#[derive(Clone, Debug, Default)]
pub(super) struct Hidden<E> {
    top: Columns<E>,
    hidden: Columns<E>,
    /// Z′, then the gradient of Z.
    wide: Columns<E>,
    gradient_of_top: Columns<E>,
    gradient_of_hidden: Columns<E>,
    /// A gradient with samples as rows.
    rows: Columns<E>,
    states: Vec<E>,
}

impl<E: Real> Hidden<E> {
    /// Z `[samples, features]` → hidden state, which stays here.
    pub fn encode(&mut self, shapes: &Shapes, parameters: &[E], to_hidden: &Place, top: &[E]) {
        let (weight, bias) = (&parameters[to_hidden.weight.clone()], &parameters[to_hidden.bias.clone()]);
        self.top.pack_transposed(top, shapes.features());
        self.hidden.product(weight, (1, shapes.hidden), bias, shapes.hidden, &self.top);
    }

    /// Hidden state → Z′ `[samples, features]`.
    pub fn decode(&mut self, shapes: &Shapes, parameters: &[E], from_hidden: &Place, top: &mut [E]) {
        let (weight, bias) = (&parameters[from_hidden.weight.clone()], &parameters[from_hidden.bias.clone()]);
        let features = shapes.features();
        self.wide.product(weight, (1, features), bias, features, &self.hidden);
        self.wide.unpack_transposed(top);
    }

    /// The gradient of Z′ in `top` `[samples, features]` becomes what of it reaches Z; those of the parameters are
    /// added to the flat `gradient`, or if it is `fresh` become its weights.
    pub fn backward(
        &mut self,
        shapes: &Shapes,
        parameters: &[E],
        [to_hidden, from_hidden]: &[Place; 2],
        top: &mut [E],
        (gradient, fresh): (&mut [E], bool),
    ) {
        let (features, hidden) = (shapes.features(), shapes.hidden);
        let samples = top.len() / features;
        let padded = samples.next_multiple_of(PANEL);
        self.rows.pack(top, padded, features);
        self.hidden.outer_product(&self.rows, &mut gradient[from_hidden.weight.clone()], fresh);
        add_rows(top, &mut gradient[from_hidden.bias.clone()]);
        self.gradient_of_top.pack_transposed(top, features);
        let weight = &parameters[from_hidden.weight.clone()];
        self.gradient_of_hidden.product(weight, (features, 1), &[], hidden, &self.gradient_of_top);

        self.states.resize(samples * hidden, E::default());
        self.gradient_of_hidden.unpack_transposed(&mut self.states);
        self.rows.pack(&self.states, padded, hidden);
        self.top.outer_product(&self.rows, &mut gradient[to_hidden.weight.clone()], fresh);
        add_rows(&self.states, &mut gradient[to_hidden.bias.clone()]);
        let weight = &parameters[to_hidden.weight.clone()];
        self.wide.product(weight, (hidden, 1), &[], features, &self.gradient_of_hidden);
        self.wide.unpack_transposed(top);
    }
}

fn add_rows<E: Real>(rows: &[E], sum: &mut [E]) {
    for row in rows.chunks_exact(sum.len()) {
        sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += *value);
    }
}
