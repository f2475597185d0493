//! The Python literal in a header: `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.

/// The three values of the literal.
#[derive(Debug, PartialEq)]
pub(super) struct Literal {
    pub descr: String,
    pub fortran_order: bool,
    pub shape: Vec<usize>,
}

/// Parses the literal, or says what is wrong and at which byte of the text.
pub(super) fn parse(text: &str) -> Result<Literal, (usize, String)> {
    let mut cursor = Cursor { text, at: 0 };
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    cursor.expect('{')?;
    while !cursor.take('}') {
        let at = cursor.at;
        let key = cursor.string()?;
        cursor.expect(':')?;
        let again = match &key[..] {
            "descr" => descr.replace(cursor.string()?).is_some(),
            "fortran_order" => fortran_order.replace(cursor.truth()?).is_some(),
            "shape" => shape.replace(cursor.lengths()?).is_some(),
            _ => return Err((at, format!("the key '{key}' is unknown"))),
        };
        if again {
            return Err((at, format!("the key '{key}' is there twice")));
        }
        if !cursor.take(',') {
            cursor.expect('}')?;
            break;
        }
    }
    cursor.skip_space();
    if cursor.at < text.len() {
        return Err((cursor.at, "something follows the closing brace".into()));
    }
    match (descr, fortran_order, shape) {
        (Some(descr), Some(fortran_order), Some(shape)) => Ok(Literal { descr, fortran_order, shape }),
        _ => Err((0, "it lacks one of the keys descr, fortran_order, shape".into())),
    }
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl Cursor<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Takes `letter` if it comes next.
    fn take(&mut self, letter: char) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(letter);
        if found {
            self.at += letter.len_utf8();
        }
        found
    }

    fn expect(&mut self, letter: char) -> Result<(), (usize, String)> {
        if self.take(letter) { Ok(()) } else { Err((self.at, format!("'{letter}' is missing"))) }
    }

    fn string(&mut self) -> Result<String, (usize, String)> {
        let quote = if self.take('\'') { '\'' } else { '"' };
        if quote == '"' && !self.take('"') {
            return Err((
                self.at,
                "a text in quotes is missing (only arrays of one number type are read)".into(),
            ));
        }
        let at = self.at;
        let length = self.rest().find(quote).ok_or((at, "a quote is not closed".to_owned()))?;
        self.at += length + 1;
        Ok(self.text[at..at + length].to_owned())
    }

    fn truth(&mut self) -> Result<bool, (usize, String)> {
        self.skip_space();
        for (word, value) in [("True", true), ("False", false)] {
            if self.rest().starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err((self.at, "True or False is missing".into()))
    }

    fn lengths(&mut self) -> Result<Vec<usize>, (usize, String)> {
        let mut lengths = Vec::new();
        self.expect('(')?;
        while !self.take(')') {
            self.skip_space();
            let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
            let length = self.rest()[..digits].parse();
            lengths.push(length.map_err(|_| (self.at, "a length is missing or too large".to_owned()))?);
            // Python 2 wrote 3L.
            self.at += digits;
            self.take('L');
            if !self.take(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(lengths)
    }
}
