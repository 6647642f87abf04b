//! Counters per context and op path: a tree whose nodes are (parent, op).

use crate::{Counters, Event, Flush, Op, Scope, Sink, Span, TraceLog, Tracer};
use std::collections::BTreeMap;
use units::CpuId;

/// Index of a [`Node`]; parents come before their children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(u32);

impl NodeId {
    const ROOT: NodeId = NodeId(0);
    #[inline]
    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a node stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Label {
    /// Outside every context.
    Root,
    /// A kernel entry.
    Context(String),
    /// An op inside its parent.
    Op(Op),
}

/// One place that events can belong to.
#[derive(Clone, Debug)]
pub struct Node {
    parent: NodeId,
    label: Label,
    children: Vec<(Op, NodeId)>,
    scope: Scope,
    entered: u64,
    counters: Counters,
}

impl Node {
    /// What this node itself counted, its children not included.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
    /// How often it was entered.
    pub fn entered(&self) -> u64 {
        self.entered
    }
    /// The innermost ground-truth scope around it.
    pub fn scope(&self) -> Scope {
        self.scope
    }
}

/// A sink that keeps the counts of each context and op path apart.
#[derive(Clone, Debug)]
pub struct ByOp {
    nodes: Vec<Node>,
    contexts: BTreeMap<String, NodeId>,
    current: NodeId,
    suspended: Vec<NodeId>,
    /// The sum over all nodes: virtual time is asked for at every kernel entry.
    total: Counters,
    /// Writes down what happens when, if somebody asked for it.
    tracer: Option<Box<Tracer>>,
}

impl Default for ByOp {
    fn default() -> Self {
        ByOp::new()
    }
}

impl ByOp {
    /// An empty tree.
    pub fn new() -> Self {
        let root = Node {
            parent: NodeId::ROOT,
            label: Label::Root,
            children: Vec::new(),
            scope: Scope::None,
            entered: 0,
            counters: Counters::new(),
        };
        ByOp {
            nodes: vec![root],
            contexts: BTreeMap::new(),
            current: NodeId::ROOT,
            suspended: Vec::new(),
            total: Counters::new(),
            tracer: None,
        }
    }

    /// Writes a trace from now on.
    pub fn trace(&mut self, tracer: Tracer) {
        self.tracer = Some(Box::new(tracer));
    }

    /// The trace, if one was written; it ends here.
    pub fn take_trace(&mut self) -> Option<TraceLog> {
        Some(self.tracer.take()?.finish())
    }

    /// For the trace: the kernel is about to run on `cpu`, at `ns`.
    pub fn set_clock(&mut self, cpu: CpuId, ns: u64) {
        if let Some(tracer) = &mut self.tracer {
            tracer.set_clock(cpu, ns, &self.total);
        }
    }

    /// All nodes; a node's index is its [`NodeId`].
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        (0u32..).map(NodeId).zip(&self.nodes)
    }

    /// The sum over everything.
    pub fn total(&self) -> Counters {
        self.total.clone()
    }

    /// Sums by ground-truth scope, over all contexts.
    pub fn by_scope(&self) -> BTreeMap<Scope, Counters> {
        let mut sums: BTreeMap<Scope, Counters> = BTreeMap::new();
        for node in &self.nodes {
            sums.entry(node.scope).or_default().merge(&node.counters);
        }
        sums
    }

    /// Contexts in name order: name, times entered, and its op paths (`""` for the context
    /// itself, else `"reclaim_pages/try_to_unmap_one"`) with the counts of each.
    pub fn by_context(&self) -> Vec<(&str, u64, BTreeMap<String, Counters>)> {
        let mut owner: Vec<NodeId> = Vec::with_capacity(self.nodes.len());
        let mut path: Vec<String> = Vec::with_capacity(self.nodes.len());
        let mut ops: BTreeMap<NodeId, BTreeMap<String, Counters>> = BTreeMap::new();
        for (id, node) in self.nodes() {
            let (own, text) = match &node.label {
                Label::Root | Label::Context(_) => (id, String::new()),
                Label::Op(op) => {
                    let above = &path[node.parent.index()];
                    let sep = if above.is_empty() { "" } else { "/" };
                    (owner[node.parent.index()], format!("{above}{sep}{}", op.name()))
                }
            };
            if !node.counters.is_empty() {
                ops.entry(own).or_default().entry(text.clone()).or_default().merge(&node.counters);
            }
            owner.push(own);
            path.push(text);
        }
        self.contexts
            .iter()
            .map(|(name, &id)| {
                let entered = self.nodes[id.index()].entered;
                (name.as_str(), entered, ops.remove(&id).unwrap_or_default())
            })
            .collect()
    }

    fn child(&mut self, parent: NodeId, op: Op) -> NodeId {
        if let Some(&(_, id)) = self.nodes[parent.index()].children.iter().find(|c| c.0 == op) {
            return id;
        }
        let scope = op.scope().unwrap_or(self.nodes[parent.index()].scope);
        let id = self.push(parent, Label::Op(op), scope);
        self.nodes[parent.index()].children.push((op, id));
        id
    }

    fn push(&mut self, parent: NodeId, label: Label, scope: Scope) -> NodeId {
        let index = u32::try_from(self.nodes.len()).expect("op paths are few");
        self.nodes.push(Node {
            parent,
            label,
            children: Vec::new(),
            scope,
            entered: 0,
            counters: Counters::new(),
        });
        NodeId(index)
    }
}

impl Sink for ByOp {
    #[inline]
    fn add(&mut self, event: Event, n: u64) {
        self.nodes[self.current.index()].counters.add(event, n);
        self.total.add(event, n);
    }

    #[inline]
    fn enter(&mut self, op: Op) {
        self.current = self.child(self.current, op);
        let node = &mut self.nodes[self.current.index()];
        node.entered += 1;
        if let Some(function) = op.function() {
            node.counters.add(function, 1);
            self.total.add(function, 1);
        }
        if let Some(tracer) = &mut self.tracer {
            tracer.enter(op, &self.total);
        }
    }

    #[inline]
    fn exit(&mut self) {
        let node = &self.nodes[self.current.index()];
        debug_assert!(matches!(node.label, Label::Op(_)), "exit without enter");
        self.current = node.parent;
        if let Some(tracer) = &mut self.tracer {
            tracer.exit(&self.total);
        }
    }

    fn begin(&mut self, context: &str) {
        self.suspended.push(self.current);
        self.current = match self.contexts.get(context) {
            Some(&id) => id,
            None => {
                let id = self.push(NodeId::ROOT, Label::Context(context.to_owned()), Scope::None);
                self.contexts.insert(context.to_owned(), id);
                id
            }
        };
        self.nodes[self.current.index()].entered += 1;
        if let Some(tracer) = &mut self.tracer {
            tracer.begin(context, &self.total);
        }
    }

    fn end(&mut self) {
        self.current = self.suspended.pop().expect("end without begin");
        if let Some(tracer) = &mut self.tracer {
            tracer.end(&self.total);
        }
    }

    #[inline(always)]
    fn watches_ptes(&self) -> bool {
        self.tracer.is_some()
    }

    fn pte_changed(&mut self, span: Span) {
        if let Some(tracer) = &mut self.tracer {
            tracer.changed(span, &self.total);
        }
    }

    fn flushed(&mut self, flush: &Flush) {
        if let Some(tracer) = &mut self.tracer {
            tracer.flushed(flush, &self.total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_belong_to_the_innermost_op_and_scope() {
        let mut sink = ByOp::new();
        sink.begin("madvise(MADV_PAGEOUT)");
        sink.enter(Op::MadviseColdOrPageoutPteRange);
        sink.add(Event::PtepGet, 2);
        sink.enter(Op::TryToUnmapOne);
        sink.add(Event::PtepGet, 3);
        sink.enter(Op::ContpteUnfold);
        sink.add(Event::PteXchg, 16);
        sink.exit();
        sink.exit();
        sink.exit();
        sink.end();

        let scopes = sink.by_scope();
        assert_eq!(scopes[&Scope::MadvPageout].get(Event::PtepGet), 2);
        assert_eq!(scopes[&Scope::Unmap].get(Event::PtepGet), 3);
        assert_eq!(scopes[&Scope::Unmap].get(Event::PteXchg), 16);
        assert_eq!(scopes[&Scope::Unmap].get(Event::FnTryToUnmapOne), 1);
        assert_eq!(sink.total().get(Event::PtepGet), 5);
        let mut sum = Counters::new();
        sink.nodes().for_each(|(_, node)| sum.merge(node.counters()));
        assert_eq!(sink.total(), sum);
    }

    #[test]
    fn a_fault_inside_a_syscall_is_its_own_context() {
        let mut sink = ByOp::new();
        sink.begin("read");
        sink.add(Event::PteRead, 1);
        sink.begin("fault");
        sink.add(Event::PteRead, 10);
        sink.end();
        sink.add(Event::PteRead, 1);
        sink.end();
        let contexts = sink.by_context();
        assert_eq!(contexts.len(), 2);
        assert_eq!(contexts[0].2[""].get(Event::PteRead), 10);
        assert_eq!(contexts[1].2[""].get(Event::PteRead), 2);
    }

    #[test]
    fn paths_name_each_op_once() {
        let mut sink = ByOp::new();
        sink.begin("munmap");
        for _ in 0..3 {
            sink.enter(Op::ZapPteRange);
            sink.enter(Op::ContpteUnfold);
            sink.add(Event::DsbIsh, 1);
            sink.exit();
            sink.exit();
        }
        sink.end();
        let contexts = sink.by_context();
        let ops = &contexts[0].2;
        assert_eq!(ops["zap_pte_range/contpte_unfold"].get(Event::DsbIsh), 3);
    }
}
