//! Study files: a matrix of runs, what to look at in them, and how to show it, in TOML.

use crate::{machine_arch, parse_bytes, parse_mem, parse_swap, status};
use machine::Machine;
use report::{Failure, Point};
use serde::Deserialize;

/// A study: what its file says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// A line on what it is about.
    pub title: String,
    /// What it asks, and of what runs; a paragraph.
    #[serde(default)]
    pub question: String,
    /// What is looked at in each run.
    #[serde(default)]
    pub look: Look,
    /// How it is shown.
    #[serde(default)]
    pub show: Show,
    /// Rows of the table of fidelity that bear on it.
    #[serde(default)]
    pub fidelity: Vec<String>,
    /// The runs.
    pub matrix: Vec<Matrix>,
}

/// What is looked at in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// A kernel entry, as in `munmap` or `fault`; else the whole run.
    pub entry: Option<String>,
    /// Only what was counted inside this op.
    pub op: Option<String>,
    /// What counts are divided by.
    #[serde(default)]
    pub per: Per,
    /// Which argument, from 0, is the memory that is worked on, in MiB.
    pub mib_arg: Option<usize>,
    /// Whether TLB misses are looked at, and not the kernel's work.
    #[serde(default)]
    pub tlb: bool,
    /// The last argument of a second run, which is subtracted.
    pub baseline: Option<String>,
}

/// What counts are divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// Nothing.
    #[default]
    Run,
    /// Calls of the entry.
    Call,
    /// Pages of the memory worked on.
    Page,
    /// Folios of the memory worked on.
    Folio,
}

impl Per {
    /// The word in tables.
    pub fn name(self) -> &'static str {
        match self {
            Per::Run => "run",
            Per::Call => "call",
            Per::Page => "page",
            Per::Folio => "folio",
        }
    }
}

/// A dimension of the matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// Folio size.
    #[default]
    Folio,
    /// CPUs.
    Cpus,
    /// The first argument.
    Arg,
    /// The first argument, which is a size in KiB.
    Kib,
    /// The second argument.
    Arg2,
    /// Kernel version and patches.
    Kernel,
    /// Overrides.
    Set,
    /// The seed.
    Seed,
}

/// How a study is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Show {
    /// Rows of tables, and the horizontal axis of plots.
    #[serde(default)]
    pub x: Axis,
    /// What the numbers of that axis are, if that is not plain.
    pub unit: Option<String>,
    /// Before and after: the first two values of this dimension.
    pub compare: Option<Axis>,
    /// What the values of `compare` are called.
    #[serde(default)]
    pub names: Vec<String>,
    /// A dimension with a line of its own for each value.
    pub series: Option<Axis>,
}

/// A product of lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// What it is about, if the study has several.
    pub title: Option<String>,
    /// What is looked at here, if it is not what the study looks at elsewhere.
    pub look: Option<Look>,
    /// How it is shown, likewise.
    pub show: Option<Show>,
    /// Path or `@name`; `{arch}` in it stands for the architecture.
    pub program: String,
    /// Lists of arguments; `{cpus}` stands for the number of CPUs.
    #[serde(default = "one")]
    pub args: Vec<Vec<String>>,
    /// Lists of alternatives: one of each follows the arguments, its words separated by spaces.
    #[serde(default)]
    pub options: Vec<Vec<String>>,
    /// Machine presets; `all` stands for every one.
    pub machines: Vec<String>,
    /// Kernels.
    #[serde(default = "default_kernel")]
    pub kernels: Vec<String>,
    /// Folio sizes: `64K`, or `boot` for what Linux does by itself.
    #[serde(default = "boot")]
    pub folios: Vec<String>,
    /// Numbers of CPUs.
    #[serde(default = "one_cpu")]
    pub cpus: Vec<u16>,
    /// Lists of overrides.
    #[serde(default = "one")]
    pub set: Vec<Vec<String>>,
    /// Seeds.
    #[serde(default = "one_seed")]
    pub seeds: Vec<u64>,
    /// The guest's environment.
    #[serde(default)]
    pub env: Vec<String>,
    /// Guest RAM.
    pub mem: Option<String>,
    /// Swap space.
    pub swap: Option<String>,
    /// What is written to files of /proc or /sys before the program starts: `FILE=TEXT`.
    #[serde(default)]
    pub write: Vec<String>,
    /// The limit on instructions.
    pub max_instructions: Option<u64>,
}

fn one() -> Vec<Vec<String>> {
    vec![Vec::new()]
}

fn default_kernel() -> Vec<String> {
    vec![machine::KernelConfig::DEFAULT.to_owned()]
}

fn boot() -> Vec<String> {
    vec!["boot".to_owned()]
}

fn one_cpu() -> Vec<u16> {
    vec![1]
}

fn one_seed() -> Vec<u64> {
    vec![0]
}

fn usage(message: String) -> Failure {
    Failure { message, status: status::USAGE }
}

impl Plan {
    /// Reads a study file; `from` names it in messages.
    ///
    /// # Errors
    /// 2 for what is no study.
    pub fn parse(from: &str, text: &str) -> Result<Plan, Failure> {
        let plan: Plan = toml::from_str(text).map_err(|error| {
            let place = error.span().map_or(String::new(), |span| {
                format!(" line {}:", text[..span.start.min(text.len())].lines().count().max(1))
            });
            usage(format!("{from}:{place} {}", error.message()))
        })?;
        plan.points().map_err(|failure| usage(format!("{from}: {failure}")))?;
        Ok(plan)
    }

    /// The points: the matrices one after the other, no point twice, and after them the runs that
    /// are subtracted.
    ///
    /// # Errors
    /// 2 for an unknown machine or a size that makes no sense. Other mistakes show when a point runs.
    pub fn points(&self) -> Result<Vec<Point>, Failure> {
        let mut points: Vec<Point> = Vec::new();
        for matrix in &self.matrix {
            for point in matrix.points()? {
                if !points.contains(&point) {
                    points.push(point);
                }
            }
        }
        for matrix in &self.matrix {
            let look = self.look(matrix);
            for point in matrix.points()? {
                if let Some(point) = look.baseline(&point)
                    && !points.contains(&point)
                {
                    points.push(point);
                }
            }
            if let (Per::Page | Per::Folio, None) = (look.per, look.mib_arg) {
                let message = format!("per = \"{}\" needs mib_arg", look.per.name());
                return Err(usage(message));
            }
        }
        if points.is_empty() {
            return Err(usage(
                "a list of the matrix is empty, so there is nothing to run".to_owned(),
            ));
        }
        Ok(points)
    }

    /// What is looked at in the runs of a matrix.
    pub fn look<'p>(&'p self, matrix: &'p Matrix) -> &'p Look {
        matrix.look.as_ref().unwrap_or(&self.look)
    }

    /// How the runs of a matrix are shown.
    pub fn show<'p>(&'p self, matrix: &'p Matrix) -> &'p Show {
        matrix.show.as_ref().unwrap_or(&self.show)
    }
}

impl Look {
    /// The run that is subtracted from that of `point`, if there is one.
    pub fn baseline(&self, point: &Point) -> Option<Point> {
        let baseline = self.baseline.as_ref()?;
        let mut other = point.clone();
        other.args.last_mut()?.clone_from(baseline);
        (other != *point).then_some(other)
    }
}

impl Matrix {
    /// The product, the last list varying fastest: machines, arguments, options, folios, CPUs, seeds, overrides, kernels.
    ///
    /// # Errors
    /// As [`Plan::points`].
    pub fn points(&self) -> Result<Vec<Point>, Failure> {
        let mut points = vec![self.common()?];
        vary(&mut points, &self.machines()?, |point, machine| {
            point.arch = machine.1.to_owned();
            point.machine.clone_from(&machine.0);
            point.program = self.program.replace("{arch}", machine.1);
        });
        vary(&mut points, &self.args, |point, args| point.args.clone_from(args));
        for alternatives in &self.options {
            vary(&mut points, alternatives, |point, words| {
                point.args.extend(words.split_whitespace().map(str::to_owned));
            });
        }
        let folios =
            self.folios.iter().map(|text| folio_kb(text)).collect::<Result<Vec<_>, _>>()?;
        vary(&mut points, &folios, |point, &kb| point.folio_kb = kb);
        vary(&mut points, &self.cpus, |point, &cpus| point.cpus = cpus);
        vary(&mut points, &self.seeds, |point, &seed| point.seed = seed);
        vary(&mut points, &self.set, |point, set| point.set.clone_from(set));
        vary(&mut points, &self.kernels, |point, kernel| point.kernel.clone_from(kernel));
        for point in &mut points {
            let cpus = point.cpus.to_string();
            point.args.iter_mut().for_each(|arg| *arg = arg.replace("{cpus}", &cpus));
        }
        Ok(points)
    }

    fn common(&self) -> Result<Point, Failure> {
        let size = |text: &Option<String>, parse: fn(&str) -> Result<u64, crate::SettingError>| {
            text.as_deref().map(parse).transpose().map_err(|error| usage(error.to_string()))
        };
        Ok(Point {
            env: self.env.clone(),
            max_instructions: self.max_instructions,
            mem_bytes: size(&self.mem, parse_mem)?,
            swap_bytes: size(&self.swap, parse_swap)?,
            write: self.write.clone(),
            ..Point::default()
        })
    }

    /// Names of the machines and of their architectures.
    fn machines(&self) -> Result<Vec<(String, &'static str)>, Failure> {
        let mut found = Vec::new();
        for name in &self.machines {
            let names = match name.as_str() {
                "all" => Machine::names().map(str::to_owned).collect(),
                name => vec![name.to_owned()],
            };
            for name in names {
                let arch = machine_arch(&name)?.name();
                found.push((name, arch));
            }
        }
        Ok(found)
    }
}

/// Each point once with each value, in the order of the points.
fn vary<T>(points: &mut Vec<Point>, values: &[T], set: impl Fn(&mut Point, &T)) {
    let product = points.iter().flat_map(|point| {
        values.iter().map(|value| {
            let mut point = point.clone();
            set(&mut point, value);
            point
        })
    });
    *points = product.collect();
}

fn folio_kb(text: &str) -> Result<u64, Failure> {
    if text == "boot" {
        return Ok(0);
    }
    let kb = parse_bytes(text).map_err(|error| usage(error.to_string()))? >> 10;
    if kb == 4 || ((16..=2048).contains(&kb) && kb.is_power_of_two()) {
        return Ok(kb);
    }
    let message =
        format!("there are no folios of {text}; 4K and powers of two from 16K to 2M are known");
    Err(usage(message))
}

/// `4K`, `64K`, `1M`; `boot` for what Linux does by itself.
pub(crate) fn folio_name(kb: u64) -> String {
    match kb {
        0 => "boot".to_owned(),
        kb if kb >= 1024 => format!("{}M", kb >> 10),
        kb => format!("{kb}K"),
    }
}

/// The part of a list that the shard `index` of `of` has: every `of`-th point, so that all shards take about as long.
///
/// # Errors
/// The sentence for what is no shard.
pub fn parse_shard(text: &str) -> Result<(usize, usize), String> {
    let wrong = || format!("`{text}` is no shard: give I/N, as in 1/4, with I from 1 to N");
    let (index, of) = text.split_once('/').ok_or_else(wrong)?;
    let (index, of) = index.parse().ok().zip(of.parse().ok()).ok_or_else(wrong)?;
    if index == 0 || index > of { Err(wrong()) } else { Ok((index, of)) }
}

/// The points of a shard.
pub fn shard(points: Vec<Point>, (index, of): (usize, usize)) -> Vec<Point> {
    points.into_iter().skip(index - 1).step_by(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        name = "test"
        title = "A test"
        [[matrix]]
        program = "@munmap"
        args = [["4"], ["8"]]
        machines = ["apple-m3-vm", "zen2"]
        folios = ["4K", "2M"]
        kernels = ["v6.12", "v7.3"]
    "#;

    #[test]
    fn the_product_has_every_combination_once_and_in_order() {
        let points = Plan::parse("test.toml", FILE).expect("right").points().expect("right");
        assert_eq!(points.len(), 16);
        let (first, last) = (&points[0], &points[15]);
        assert_eq!(
            (first.arch.as_str(), first.folio_kb, first.args[0].as_str()),
            ("arm64", 4, "4")
        );
        assert_eq!((points[1].kernel.as_str(), points[2].folio_kb), ("v7.3", 2048));
        assert_eq!((last.arch.as_str(), last.kernel.as_str()), ("x86_64", "v7.3"));
    }

    #[test]
    fn baselines_are_run_once_for_all_points_that_share_them() {
        let text = FILE.replace("[[matrix]]", "[look]\nbaseline = \"0\"\n[[matrix]]");
        let plan = Plan::parse("test.toml", &text).expect("right");
        let points = plan.points().expect("right");
        assert_eq!(points.len(), 24);
        assert_eq!(plan.look.baseline(&points[0]).as_ref(), points.get(16));
        assert_eq!(plan.look.baseline(&points[16]), None);
    }

    #[test]
    fn one_of_each_list_of_options_follows_the_arguments() {
        let text = FILE.replace(
            "machines",
            "options = [[\"-a 1\", \"\"], [\"-b\", \"-c\"]]\nwrite = [\"/x=1\"]\nmachines",
        );
        let points = Plan::parse("test.toml", &text).expect("right").points().expect("right");
        assert_eq!(points.len(), 64);
        assert_eq!(points[0].args, ["4", "-a", "1", "-b"]);
        assert_eq!(points[12].args, ["4", "-c"]);
        assert!(points.iter().all(|p| p.write == ["/x=1"]));
    }

    #[test]
    fn arguments_may_say_how_many_cpus_there_are() {
        let text = FILE.replace("[[\"4\"], [\"8\"]]", "[[\"{cpus}\"]]\ncpus = [1, 2]");
        let points = Plan::parse("test.toml", &text).expect("right").points().expect("right");
        assert!(points.iter().all(|p| p.args[0] == p.cpus.to_string()));
        assert_eq!(points.len(), 16);
    }

    #[test]
    fn shards_are_a_partition() {
        let points = Plan::parse("test.toml", FILE).expect("right").points().expect("right");
        let mut all: Vec<Point> = (1..=3).flat_map(|i| shard(points.clone(), (i, 3))).collect();
        assert_eq!(all.len(), points.len());
        all.sort();
        let mut sorted = points;
        sorted.sort();
        assert_eq!(all, sorted);
        assert_eq!(parse_shard("2/3"), Ok((2, 3)));
        for text in ["0/3", "4/3", "1", "a/b", "1/0", "-1/2"] {
            assert!(parse_shard(text).expect_err("wrong").contains("no shard"), "{text}");
        }
    }

    #[test]
    fn mistakes_name_the_file_and_what_is_wrong() {
        for (from, to, part) in [
            ("zen2", "zen9", "unknown machine `zen9`"),
            ("2M", "3M", "no folios of 3M"),
            ("kernels", "kernel", "unknown field `kernel`"),
            ("[[\"4\"], [\"8\"]]", "[]", "nothing to run"),
            ("title = \"A test\"", "", "missing field `title`"),
            ("[[matrix]]", "[look]\nper = \"page\"\n[[matrix]]", "needs mib_arg"),
        ] {
            let failure = Plan::parse("my.toml", &FILE.replace(from, to)).expect_err(part);
            assert_eq!(failure.status, status::USAGE);
            let message = failure.message;
            assert!(message.starts_with("my.toml:") && message.contains(part), "{message}");
        }
    }
}
