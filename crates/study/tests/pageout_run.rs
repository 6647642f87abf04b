//! The study's program, really run: what the guest prints is what the model says, and the counts
//! per folio are those derived by hand from Linux.

use cost::PriceList;
use events::Event;
use machine::{Console, Stream};
use report::RunReport;
use study::pageout::{KERNELS, MACHINES, SYSCALL};
use study::{Program, RunRequest, ThpPolicy, ThpSetting};
use units::ArchId;

const MIB: u64 = 8;
const FOLIOS: u64 = MIB * 16;

/// Keeps what the guest says.
#[derive(Default)]
struct Heard(Vec<u8>);

impl Console for Heard {
    fn write(&mut self, _: Stream, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
    fn read(&mut self, _: &mut [u8]) -> usize {
        0
    }
}

/// Pages out 64K folios; returns the report and the nanoseconds that the guest printed.
fn pageout(arch: ArchId, machine: &str, kernel: &str) -> (RunReport, u64) {
    let program = Program::open("@pageout", arch).expect("built in");
    let request = RunRequest {
        kernel: kernel.to_owned(),
        machine: Some(machine.to_owned()),
        mem_bytes: 64 << 20,
        thp: vec![ThpSetting { kib: 64, policy: ThpPolicy::Always }],
        check: true,
        ..RunRequest::new(program, vec!["pageout".to_owned(), MIB.to_string()])
    };
    let mut heard = Heard::default();
    let report = study::run(&request, &mut heard).expect("runs");
    let text = String::from_utf8(heard.0).expect("text");
    let took = text.split("took ").nth(1).and_then(|t| t.split(' ').next());
    (report, took.and_then(|ns| ns.parse().ok()).expect("the guest prints its time"))
}

#[test]
fn the_guest_measures_what_the_model_says() {
    for (arch, machine) in MACHINES {
        let prices = PriceList::for_machine(machine, arch).expect("embedded");
        for kernel in KERNELS {
            let (report, printed) = pageout(arch, machine, kernel);
            let call = report.syscall(SYSCALL).expect("called");
            let modelled = prices.time(&call.events.counters(), 0).ns();
            let around = printed.abs_diff(modelled);
            assert!(around <= 1000, "{machine} {kernel}: printed {printed}, modelled {modelled}");
            assert!(report.time.low_ns <= report.time.ns && report.time.ns <= report.time.high_ns);
            assert!(report.time.ns > printed);
        }
    }
}

#[test]
fn counts_per_folio_are_those_derived_by_hand() {
    let check = |machine: usize, kernel: usize, expected: &[(Event, u64)]| {
        let (arch, machine) = MACHINES[machine];
        let (report, _) = pageout(arch, machine, KERNELS[kernel]);
        let events = &report.syscall(SYSCALL).expect("called").events;
        for &(event, per_folio) in expected {
            let name = event.name();
            assert_eq!(events.get(event), per_folio * FOLIOS, "{arch} {}: {name}", KERNELS[kernel]);
        }
    };
    use Event::{Invlpg, PteRead, PteWrite, PteXchg, PtepGet, TlbiRvale1is, TlbiVale1is};
    // Scan 1 + 63 calls; 3 + 99 loads; 16 clears and 16 stores more in the unfold.
    let per_page = [
        (PtepGet, 64),
        (PteRead, 102),
        (PteXchg, 32),
        (PteWrite, 32),
        (TlbiVale1is, 16),
        (TlbiRvale1is, 1),
    ];
    check(0, 0, &per_page);
    let batched = [
        (PtepGet, 4),
        (PteRead, 26),
        (PteXchg, 16),
        (PteWrite, 16),
        (TlbiVale1is, 0),
        (TlbiRvale1is, 1),
    ];
    check(0, 1, &batched);
    check(1, 0, &[(PtepGet, 79), (PteXchg, 16), (PteWrite, 16), (Invlpg, 16)]);
    check(1, 1, &[(PtepGet, 34), (PteXchg, 16), (PteWrite, 16), (Invlpg, 16)]);
}
