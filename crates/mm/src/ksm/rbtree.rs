//! A red-black tree over numbered nodes: who searches decides the order.
//!
//! The shape is that of Linux's trees, as how many pages a search looks at depends on it. The
//! nodes are numbered by what hangs in the tree, so moving one costs no allocation.
//! Source: Linux lib/rbtree.c `rb_insert_color()`, `rb_erase()`, `rb_replace_node()`.

/// Left or right of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Colour {
    #[default]
    Red,
    Black,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    parent: Option<u32>,
    children: [Option<u32>; 2],
    colour: Colour,
}

/// The tree. A node that is not in it may be inserted under any number.
#[derive(Debug, Default)]
pub(super) struct RbTree {
    root: Option<u32>,
    nodes: Vec<Node>,
}

impl RbTree {
    pub(super) fn root(&self) -> Option<u32> {
        self.root
    }

    pub(super) fn child(&self, node: u32, side: Side) -> Option<u32> {
        self.node(node).children[side as usize]
    }

    /// Forgets every node at once (`RB_ROOT`).
    pub(super) fn clear(&mut self) {
        self.root = None;
    }

    /// Nodes in order.
    pub(super) fn in_order(&self) -> Vec<u32> {
        let (mut all, mut path, mut at) = (Vec::new(), Vec::new(), self.root);
        while at.is_some() || !path.is_empty() {
            while let Some(node) = at {
                path.push(node);
                at = self.child(node, Side::Left);
            }
            let Some(node) = path.pop() else { break };
            all.push(node);
            at = self.child(node, Side::Right);
        }
        all
    }

    /// Hangs `node` where a search for it ended (`rb_link_node()`, `rb_insert_color()`).
    pub(super) fn insert(&mut self, node: u32, at: Option<(u32, Side)>) {
        if self.nodes.len() <= node as usize {
            self.nodes.resize(node as usize + 1, Node::default());
        }
        self.nodes[node as usize] =
            Node { parent: at.map(|(parent, _)| parent), ..Node::default() };
        match at {
            None => self.root = Some(node),
            Some((parent, side)) => self.node_mut(parent).children[side as usize] = Some(node),
        }
        self.insert_color(node);
    }

    /// Puts `new` in the place of `old`.
    pub(super) fn replace(&mut self, old: u32, new: u32) {
        if self.nodes.len() <= new as usize {
            self.nodes.resize(new as usize + 1, Node::default());
        }
        let node = *self.node(old);
        self.nodes[new as usize] = node;
        self.change_child(old, Some(new), node.parent);
        for child in node.children.into_iter().flatten() {
            self.node_mut(child).parent = Some(new);
        }
    }

    /// Takes `node` out.
    pub(super) fn erase(&mut self, node: u32) {
        let Node { parent, children, colour } = *self.node(node);
        let (gap, side, removed, child);
        match children {
            [Some(left), Some(_)] => {
                debug_assert!(left != node);
                let next = self.leftmost(children[Side::Right as usize].expect("two children"));
                let Node { parent: above, children: below, colour: of_next } = *self.node(next);
                removed = of_next;
                child = below[Side::Right as usize];
                if above == Some(node) {
                    (gap, side) = (Some(next), Side::Right);
                } else {
                    (gap, side) = (above, Side::Left);
                    self.set_child(above.expect("below the node"), Side::Left, child);
                    self.set_child(next, Side::Right, children[Side::Right as usize]);
                }
                self.set_child(next, Side::Left, Some(left));
                self.change_child(node, Some(next), parent);
                self.node_mut(next).parent = parent;
                self.node_mut(next).colour = colour;
            }
            [only, None] | [None, only] => {
                removed = colour;
                child = only;
                gap = parent;
                side = parent.map_or(Side::Left, |p| self.side_of(p, node));
                self.change_child(node, only, parent);
                if let Some(only) = only {
                    self.node_mut(only).parent = parent;
                }
            }
        }
        if removed == Colour::Black {
            self.erase_color(child, gap, side);
        }
    }

    fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    fn node_mut(&mut self, node: u32) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    fn is_red(&self, node: Option<u32>) -> bool {
        node.is_some_and(|n| self.node(n).colour == Colour::Red)
    }

    fn side_of(&self, parent: u32, child: u32) -> Side {
        match self.child(parent, Side::Left) == Some(child) {
            true => Side::Left,
            false => Side::Right,
        }
    }

    fn leftmost(&self, mut node: u32) -> u32 {
        while let Some(left) = self.child(node, Side::Left) {
            node = left;
        }
        node
    }

    fn set_child(&mut self, parent: u32, side: Side, child: Option<u32>) {
        self.node_mut(parent).children[side as usize] = child;
        if let Some(child) = child {
            self.node_mut(child).parent = Some(parent);
        }
    }

    fn change_child(&mut self, old: u32, new: Option<u32>, parent: Option<u32>) {
        match parent {
            None => self.root = new,
            Some(parent) => {
                let side = self.side_of(parent, old);
                self.node_mut(parent).children[side as usize] = new;
            }
        }
    }

    /// The child on the other side comes up, `node` goes down to `side`.
    fn rotate(&mut self, node: u32, side: Side) -> u32 {
        let up = self.child(node, side.other()).expect("a child to rotate up");
        let parent = self.node(node).parent;
        let inner = self.child(up, side);
        self.change_child(node, Some(up), parent);
        self.node_mut(up).parent = parent;
        self.set_child(node, side.other(), inner);
        self.set_child(up, side, Some(node));
        up
    }

    fn insert_color(&mut self, mut node: u32) {
        loop {
            let Some(parent) = self.node(node).parent else {
                self.node_mut(node).colour = Colour::Black;
                return;
            };
            if self.node(parent).colour == Colour::Black {
                return;
            }
            let grand = self.node(parent).parent.expect("a red node is not the root");
            let side = self.side_of(grand, parent);
            let uncle = self.child(grand, side.other());
            if let Some(uncle) = uncle
                && self.is_red(Some(uncle))
            {
                self.node_mut(uncle).colour = Colour::Black;
                self.node_mut(parent).colour = Colour::Black;
                self.node_mut(grand).colour = Colour::Red;
                node = grand;
                continue;
            }
            if self.side_of(parent, node) != side {
                self.rotate(parent, side);
            }
            let up = self.rotate(grand, side.other());
            self.node_mut(up).colour = Colour::Black;
            self.node_mut(grand).colour = Colour::Red;
            return;
        }
    }

    /// One black node is missing on `side` of `parent`, where `node` is.
    fn erase_color(&mut self, mut node: Option<u32>, mut parent: Option<u32>, mut side: Side) {
        while let Some(above) = parent
            && !self.is_red(node)
        {
            let mut sibling = self.child(above, side.other()).expect("as many black nodes");
            if self.is_red(Some(sibling)) {
                self.rotate(above, side);
                self.node_mut(sibling).colour = Colour::Black;
                self.node_mut(above).colour = Colour::Red;
                sibling = self.child(above, side.other()).expect("as many black nodes");
            }
            let (near, far) = (self.child(sibling, side), self.child(sibling, side.other()));
            if !self.is_red(near) && !self.is_red(far) {
                self.node_mut(sibling).colour = Colour::Red;
                (node, parent) = (Some(above), self.node(above).parent);
                side = parent.map_or(Side::Left, |p| self.side_of(p, above));
                continue;
            }
            if !self.is_red(far) {
                sibling = self.rotate(sibling, side.other());
                self.node_mut(sibling).colour = Colour::Black;
                let down = self.child(sibling, side.other()).expect("it was rotated down");
                self.node_mut(down).colour = Colour::Red;
            }
            self.rotate(above, side);
            self.node_mut(sibling).colour = self.node(above).colour;
            self.node_mut(above).colour = Colour::Black;
            let far = self.child(sibling, side.other()).expect("a red node was there");
            self.node_mut(far).colour = Colour::Black;
            return;
        }
        if let Some(node) = node {
            self.node_mut(node).colour = Colour::Black;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Ordering;

    /// Inserts `node`, ordered by its number.
    fn insert(tree: &mut RbTree, node: u32) {
        let (mut at, mut place) = (tree.root(), None);
        while let Some(here) = at {
            let side = match node.cmp(&here) {
                Ordering::Less => Side::Left,
                _ => Side::Right,
            };
            place = Some((here, side));
            at = tree.child(here, side);
        }
        tree.insert(node, place);
    }

    /// Black nodes on each path; panics if the tree is no red-black tree.
    fn check(tree: &RbTree, at: Option<u32>, parent: Option<u32>) -> usize {
        let Some(node) = at else { return 1 };
        assert_eq!(tree.node(node).parent, parent);
        let red = tree.is_red(at);
        assert!(!(red && tree.is_red(parent)), "two red nodes in a row");
        let left = check(tree, tree.child(node, Side::Left), at);
        assert_eq!(left, check(tree, tree.child(node, Side::Right), at), "black heights");
        left + usize::from(!red)
    }

    #[test]
    fn stays_sorted_and_balanced_through_any_insertions_and_removals() {
        let mut tree = RbTree::default();
        let mut inside = std::collections::BTreeSet::new();
        let mut seed = 12_345_u32;
        for round in 0..4000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let node = seed >> 22;
            if inside.remove(&node) {
                tree.erase(node);
            } else {
                inside.insert(node);
                insert(&mut tree, node);
            }
            if round % 16 == 0 {
                assert!(!tree.is_red(tree.root()));
                check(&tree, tree.root(), None);
                assert!(tree.in_order().into_iter().eq(inside.iter().copied()));
            }
        }
    }

    #[test]
    fn a_node_can_take_the_place_of_another() {
        let mut tree = RbTree::default();
        for node in [10, 20, 30, 40, 50] {
            insert(&mut tree, node);
        }
        tree.replace(20, 25);
        check(&tree, tree.root(), None);
        assert_eq!(tree.in_order(), [10, 25, 30, 40, 50]);
    }
}
