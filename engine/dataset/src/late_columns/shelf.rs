//! Lists in files: appended batch by batch, read back one by one in any order.
//!
//! A list is its length (`u32`), whether some of its values are null (`u8`), then if so a byte for each value (1 where there
//! is one), and the values as they lie in memory. Its address is the file's number and the place in the file.

use crate::lists::{elements, elements_of};
use arrow::{
    array::{
        Array, ArrayDataBuilder, ArrayRef, AsArray, BooleanBufferBuilder, NullBufferBuilder, UInt64Array,
        make_array,
    },
    buffer::MutableBuffer,
    datatypes::{DataType, Field, UInt64Type},
};
use datafusion::{
    error::{DataFusionError, Result},
    execution::{
        TaskContext,
        disk_manager::DiskManager,
        memory_pool::{MemoryConsumer, MemoryReservation},
    },
};
use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io::Write,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Bits of an address that are the place in a file.
const PLACE_BITS: u32 = 44;
/// Bytes before a list's values.
const HEAD: usize = 5;
/// Bytes that are read at once where lists lie one behind the other.
const RUN_BYTES: usize = 256 << 10;
/// Bytes that a list is taken to have before one was read.
const FIRST_GUESS: usize = 8 << 10;

/// Files of lists, one for each partition that has put some aside.
#[derive(Default)]
pub(super) struct Shelf {
    files: Mutex<Vec<Arc<ShelfFile>>>,
    /// Where equal lists have one address: the lists that are there.
    known: Option<Arc<Mutex<Known>>>,
}

/// Addresses by the first half of the lists' BLAKE3 hashes.
#[derive(Default)]
struct Known {
    addresses: HashMap<[u8; 16], u64>,
    reserved: Option<MemoryReservation>,
}

/// Bytes of an entry of [`Known`], with what a table keeps free.
const KNOWN_BYTES: usize = 48;

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").finish_non_exhaustive()
    }
}

struct ShelfFile {
    file: File,
    /// Removes the file at its end.
    _kept: Arc<dyn datafusion::execution::SpillFile>,
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of one value of a list that can be put aside; none of other types.
pub(super) fn value_width(list: &DataType) -> Option<usize> {
    match list {
        DataType::FixedSizeList(item, _) | DataType::List(item) | DataType::LargeList(item) => {
            item.data_type().primitive_width()
        }
        _ => None,
    }
}

impl Shelf {
    /// A shelf on which equal lists have one address, so that addresses can be grouped by. Lists are equal here if their bits
    /// are, as in DataFusion's groups.
    pub fn of_equals() -> Self {
        Self { known: Some(Arc::default()), ..Self::default() }
    }

    /// Whether equal lists have one address.
    pub fn is_of_equals(&self) -> bool {
        self.known.is_some()
    }

    /// A new file, for the lists of one partition.
    pub fn writer(&self, context: &TaskContext) -> Result<ShelfWriter> {
        let disk: &Arc<DiskManager> = &context.runtime_env().disk_manager;
        let kept = disk.create_tmp_file("putting series aside")?;
        let path =
            kept.path().ok_or_else(|| DataFusionError::Internal("temporary files without a path".into()))?;
        let file = File::open(path)?;
        let out = kept.open_writer()?;
        let mut files = lock(&self.files);
        let number = files.len() as u64;
        files.push(Arc::new(ShelfFile { file, _kept: kept }));
        if let Some(known) = &self.known {
            let pool = &context.runtime_env().memory_pool;
            let reserve = || MemoryConsumer::new("lists to group by").register(pool);
            lock(known).reserved.get_or_insert_with(reserve);
        }
        let known = self.known.clone();
        Ok(ShelfWriter { out, first: number << PLACE_BITS, written: 0, bytes: Vec::new(), known })
    }

    fn file(&self, number: u64) -> Result<Arc<ShelfFile>> {
        let files = lock(&self.files);
        let file = usize::try_from(number).ok().and_then(|number| files.get(number));
        file.cloned().ok_or_else(|| DataFusionError::Internal(format!("no file {number} of series")))
    }
}

/// Appends lists to a file.
pub(super) struct ShelfWriter {
    out: Box<dyn datafusion::execution::SpillWriter>,
    /// The address of the file's begin.
    first: u64,
    written: u64,
    bytes: Vec<u8>,
    known: Option<Arc<Mutex<Known>>>,
}

impl ShelfWriter {
    /// Appends the lists of a column; gives their addresses, null for null. All can be read when this is back.
    pub fn put(&mut self, lists: &dyn Array) -> Result<UInt64Array> {
        let values = elements(lists)?.to_data();
        let width = value_width(lists.data_type()).unwrap_or_default();
        let all = &values.buffers()[0].as_slice()[values.offset() * width..];
        self.bytes.clear();
        // Held until all is written: whoever is given an address may read it at once.
        let mut known = self.known.as_deref().map(lock);
        let mut addresses = UInt64Array::builder(lists.len());
        for row in 0..lists.len() {
            let range = elements_of(lists, row)?;
            if lists.is_null(row) {
                addresses.append_null();
                continue;
            }
            let start = self.bytes.len();
            let length = u32::try_from(range.len())
                .map_err(|_| DataFusionError::Execution(format!("a list of {} values", range.len())))?;
            let nulls = values.nulls().map(|nulls| nulls.slice(range.start, range.len()));
            let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
            self.bytes.extend(length.to_le_bytes());
            self.bytes.push(u8::from(nulls.is_some()));
            self.bytes.extend(nulls.iter().flat_map(|nulls| nulls.iter().map(u8::from)));
            self.bytes.extend(&all[range.start * width..range.end * width]);
            if let Some(nulls) = &nulls {
                // What lies there is nobody's, and would make equal lists differ.
                let values = self.bytes.len() - range.len() * width;
                let absent = (0..range.len()).filter(|place| nulls.is_null(*place));
                absent.for_each(|place| self.bytes[values + place * width..][..width].fill(0));
            }
            let address = self.first + self.written + start as u64;
            let address = match &mut known {
                None => address,
                Some(known) => {
                    let mut half = [0; 16];
                    blake3::Hasher::new().update(&self.bytes[start..]).finalize_xof().fill(&mut half);
                    let first = *known.addresses.entry(half).or_insert(address);
                    if first != address {
                        self.bytes.truncate(start);
                    }
                    first
                }
            };
            addresses.append_value(address);
        }
        if let Some(Known { addresses, reserved: Some(reserved) }) = known.as_deref_mut() {
            reserved.try_resize(addresses.len() * KNOWN_BYTES)?;
        }
        self.out.write_all(&self.bytes)?;
        self.out.flush()?;
        self.written += self.bytes.len() as u64;
        Ok(addresses.finish())
    }
}

/// The lists of `field` at `addresses`, as they were put aside.
pub(super) fn take(shelf: &Shelf, addresses: &dyn Array, field: &Field) -> Result<ArrayRef> {
    let addresses = addresses
        .as_primitive_opt::<UInt64Type>()
        .ok_or_else(|| DataFusionError::Internal("addresses of series of another type".into()))?;
    let mut lists = Lists::of(field, addresses.len())?;
    let mut window = Window::default();
    for row in 0..addresses.len() {
        if addresses.is_null(row) {
            lists.add_null();
            continue;
        }
        let behind = addresses.values()[row..].iter().zip((row..).map(|row| addresses.is_valid(row)));
        lists.add(window.list(shelf, behind, lists.width)?);
    }
    lists.finish(field)
}

/// What was read last of a file, and what lies behind is likely to be asked for next.
#[derive(Default)]
struct Window {
    file: Option<(u64, Arc<ShelfFile>)>,
    bytes: Vec<u8>,
    /// Where they lie in the file, and how many are there.
    place: u64,
    filled: usize,
    /// Bytes of the list that was read last.
    last: usize,
}

impl Window {
    /// The list at the first of `addresses`, with its head; the others are those that will be asked for.
    fn list<'a>(
        &mut self,
        shelf: &Shelf,
        addresses: impl Iterator<Item = (&'a u64, bool)> + Clone,
        width: usize,
    ) -> Result<&[u8]> {
        let Some((&address, _)) = addresses.clone().next() else { return Ok(&[]) };
        let (number, place) = (address >> PLACE_BITS, address & ((1 << PLACE_BITS) - 1));
        if self.file.as_ref().is_none_or(|(known, _)| *known != number) {
            self.file = Some((number, shelf.file(number)?));
            self.filled = 0;
        }
        if self.held(place, HEAD).is_none() {
            let guess = if self.last == 0 { FIRST_GUESS } else { self.last };
            let follow = addresses.zip(0_u64..).take_while(|((next, valid), n)| {
                *valid && **next == address + n * guess as u64 && (*n as usize) < RUN_BYTES / guess
            });
            self.read(place, guess * follow.count().max(1))?;
        }
        let head = self.held(place, HEAD).ok_or_else(cut_off)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let size = HEAD + length * (width + usize::from(head[4]));
        if self.held(place, size).is_none() {
            self.read(place, size)?;
        }
        self.last = size;
        self.held(place, size).ok_or_else(cut_off)
    }

    fn held(&self, place: u64, size: usize) -> Option<&[u8]> {
        let from = usize::try_from(place.checked_sub(self.place)?).ok()?;
        self.bytes[..self.filled].get(from..from.checked_add(size)?)
    }

    fn read(&mut self, place: u64, size: usize) -> Result<()> {
        let Some((_, file)) = &self.file else { return Err(cut_off()) };
        self.bytes.resize(size.max(self.bytes.len()), 0);
        (self.place, self.filled) = (place, 0);
        while self.filled < size {
            match file.file.read_at(&mut self.bytes[self.filled..size], place + self.filled as u64) {
                Ok(0) => break,
                Ok(n) => self.filled += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

fn cut_off() -> DataFusionError {
    DataFusionError::Execution("a temporary file of series is shorter than what was written to it".into())
}

/// A column that is put together again.
struct Lists {
    width: usize,
    values: MutableBuffer,
    n_values: usize,
    /// Which values are there, once one is not.
    valid: Option<BooleanBufferBuilder>,
    offsets: Vec<i64>,
    nulls: NullBufferBuilder,
    /// Values of a list, where all have as many.
    length: Option<usize>,
}

impl Lists {
    fn of(field: &Field, rows: usize) -> Result<Self> {
        let width = value_width(field.data_type())
            .ok_or_else(|| DataFusionError::Internal(format!("{} cannot be put aside", field.data_type())))?;
        let length = match field.data_type() {
            DataType::FixedSizeList(_, length) => usize::try_from(*length).ok(),
            _ => None,
        };
        Ok(Self {
            width,
            values: MutableBuffer::new(rows * length.unwrap_or(0) * width),
            n_values: 0,
            valid: None,
            offsets: vec![0],
            nulls: NullBufferBuilder::new(rows),
            length,
        })
    }

    fn add_null(&mut self) {
        let length = self.length.unwrap_or(0);
        self.values.extend_zeros(length * self.width);
        self.nulls.append_null();
        self.end(length, None);
    }

    /// Adds a list with its head.
    fn add(&mut self, bytes: &[u8]) {
        let has_nulls = bytes[4] != 0;
        let body = &bytes[HEAD..];
        let length = body.len() / (self.width + usize::from(has_nulls));
        let (valid, values) = body.split_at(if has_nulls { length } else { 0 });
        self.values.extend_from_slice(values);
        self.nulls.append_non_null();
        self.end(length, has_nulls.then_some(valid));
    }

    fn end(&mut self, length: usize, valid: Option<&[u8]>) {
        if let (None, Some(_)) = (&self.valid, valid) {
            let mut before = BooleanBufferBuilder::new(self.n_values + length);
            before.append_n(self.n_values, true);
            self.valid = Some(before);
        }
        match (&mut self.valid, valid) {
            (Some(all), Some(valid)) => valid.iter().for_each(|is_there| all.append(*is_there != 0)),
            (Some(all), None) => all.append_n(length, true),
            (None, _) => {}
        }
        self.n_values += length;
        self.offsets.push(self.n_values as i64);
    }

    fn finish(mut self, field: &Field) -> Result<ArrayRef> {
        let (DataType::FixedSizeList(item, _) | DataType::List(item) | DataType::LargeList(item)) =
            field.data_type()
        else {
            return Err(DataFusionError::Internal(format!("{} cannot be put aside", field.data_type())));
        };
        let values = ArrayDataBuilder::new(item.data_type().clone())
            .len(self.n_values)
            .add_buffer(self.values.into())
            .nulls(self.valid.map(|mut valid| valid.finish().into()))
            .build()?;
        let lists = ArrayDataBuilder::new(field.data_type().clone())
            .len(self.offsets.len() - 1)
            .nulls(self.nulls.finish())
            .add_child_data(values);
        let lists = match field.data_type() {
            DataType::List(_) => {
                let offsets: std::result::Result<Vec<i32>, _> =
                    self.offsets.into_iter().map(i32::try_from).collect();
                let offsets = offsets.map_err(|_| {
                    DataFusionError::Execution("a batch of lists with more than 2³¹ values".into())
                })?;
                lists.add_buffer(offsets.into())
            }
            DataType::LargeList(_) => lists.add_buffer(self.offsets.into()),
            _ => lists,
        };
        Ok(make_array(lists.build()?))
    }
}
