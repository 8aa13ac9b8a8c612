//! Reasons and fixes as sentences. A failure is data; this is where it becomes text, for every surface.

use berth_api::keys::DEFAULT_QUEUE;
use berth_engine::facts::Problem;
use berth_engine::outcome::{Action, Cause, Code, DomainPath, Eviction, Fix, FixKind, Proof, QueueBlock, Reason, RoomFor, Rule, Stale, Unit};

/// Most rules that one sentence lists.
const MAX_RULES: usize = 3;

/// One sentence that says why.
#[must_use]
pub fn sentence(reason: &Reason) -> String {
    let mut text = head(reason);
    // A mistake's own sentence says already what would be right.
    let fixes = reason
        .fixes
        .iter()
        .filter(|fix| fix.kind != FixKind::CorrectValue)
        .take(2);
    let fixes: Vec<String> = fixes.map(|fix| phrase(fix, reason.best_domain.as_ref())).collect();
    if !fixes.is_empty() {
        text.push_str(&format!(": {}", fixes.join(", or ")));
    }
    let evidence = evidence(reason);
    if !evidence.is_empty() {
        text.push_str(&format!(" ({evidence})"));
    }
    text
}

fn head(reason: &Reason) -> String {
    let level = reason.level.as_deref().unwrap_or("domain");
    let best = reason
        .best_domain
        .as_ref()
        .map_or_else(|| "the cluster".to_owned(), domain);
    let who = if reason.subgroup.is_empty() {
        String::new()
    } else {
        format!("subgroup {} ", reason.subgroup)
    };
    let needed = units(reason.unit, reason.needs);
    match reason.code {
        Code::Problem => reason
            .problem
            .as_ref()
            .map_or_else(|| "holds a mistake".to_owned(), problem),
        Code::UnsupportedFeature => {
            format!("{who}uses {}, which is recognised but not supported yet", reason.detail)
        }
        Code::QueueNotFound if queue_name(reason).is_empty() => "its PodGroup names no queue".to_owned(),
        Code::QueueNotFound if queue_name(reason) == DEFAULT_QUEUE => {
            format!("queue {DEFAULT_QUEUE}, that of work that names none, does not exist")
        }
        Code::QueueNotFound => format!("queue {} does not exist", queue_name(reason)),
        Code::QueueOrphaned if reason.detail.is_empty() => {
            format!("queue {} is above itself: correct spec.parentQueue there", queue_name(reason))
        }
        Code::QueueOrphaned => format!(
            "queue {} is below queue {}, which does not exist",
            queue_name(reason), reason.detail
        ),
        Code::QueueNotLeaf => format!(
            "queue {} has queues below it; only a queue without any takes work",
            queue_name(reason)
        ),
        Code::QueueOverLimit => reason
            .queue
            .as_ref()
            .map_or_else(|| "a queue is at its limit".to_owned(), over_limit),
        Code::QueueOverQuota => reason
            .queue
            .as_ref()
            .map_or_else(|| "a queue is at its quota".to_owned(), over_quota),
        Code::NotEnoughPods => format!("{who}needs {needed}; {} exist so far", reason.has),
        Code::PodsGated => format!(
            "{who}has pods held by scheduling gates: {} of {needed} can start",
            reason.has
        ),
        Code::RequiredDomainTooSmall => format!("{who}needs {needed} in one {level}; {}", best_room(reason)),
        Code::PinnedDomainFull => {
            format!(
                "{who}must stay in {best} with its running pods, which is full: it has room for {} of {needed}",
                reason.has
            )
        }
        Code::AlreadySplit => {
            format!("{who}already runs in more than one {level}, against its required level: no pod is moved")
        }
        Code::DomainLimit if !reason.detail.is_empty() => {
            format!("its limits on domains ({}) leave no placement together, though each of them does", reason.detail)
        }
        Code::DomainLimit => {
            format!("it may use at most {} of {level}, and needs {}", units(reason.unit, reason.has), reason.needs)
        }
        Code::SubgroupsDoNotFitTogether => {
            let within = reason
                .level
                .as_ref()
                .map_or_else(String::new, |level| format!(" in one {level}"));
            format!(
                "every subgroup fits alone, but not all together{within}; the best, {best}, has room for {} of {needed}",
                reason.has
            )
        }
        Code::NotEnoughRoom => format!("{who}needs {needed}; {best} has room for {}", reason.has),
        Code::NoNodeMatches => format!("{who}fits no node, even an empty one"),
        Code::PodRulesUnmet => format!(
            "{who}needs {needed}; there is room, but rules about other pods (affinity, anti-affinity, spread) allow no \
             placement of all"
        ),
        Code::NotFoundWithinBudget => {
            "no placement was found within the search budget; that is no proof that there is none".to_owned()
        }
        Code::BindRefused => format!("the API server refused a binding: {}", reason.detail),
        Code::StaleGang if reason.detail.is_empty() => {
            "fewer pods ran than it needs for longer than its grace period: the others are being evicted".to_owned()
        }
        Code::StaleGang => format!(
            "fewer pods ran than it needs for longer than its grace period, and an eviction was refused: {}",
            reason.detail
        ),
        Code::WaitingForRoom => {
            let are = if reason.needs == 1 { "pod is" } else { "pods are" };
            format!("room is kept for it: {} of the {} {are} gone that had to leave", reason.has, reason.needs)
        }
        Code::Preempted => format!("it was evicted to make room for {}; it starts anew when its pods are gone", reason.detail),
        Code::VolumesNotReady => format!("volumes were not ready in time: {}", reason.detail),
    }
}

/// What is said of an eviction.
#[must_use]
pub fn eviction(eviction: &Eviction) -> String {
    match &eviction.cause {
        Cause::Stale(stale) => self::stale(stale),
        Cause::Room(room) => evicted(eviction.pods.len(), room),
    }
}

/// What is said of pods that are evicted for another gang.
#[must_use]
pub fn evicted(n_pods: usize, room: &RoomFor) -> String {
    let pods = format!("{n_pods} pod{}", plural(i64::try_from(n_pods).unwrap_or(i64::MAX)));
    let what = if room.whole { format!("the gang ({pods})") } else { format!("{pods} above its minimum") };
    let by = format!("{}/{}", room.by.namespace, room.by.name);
    match room.action {
        Action::Preempt => {
            format!("{what} evicted for {by}, which has a higher priority in the queue ({} against {})", room.by_priority, room.priority)
        }
        Action::Reclaim => format!("{what} evicted for {by}: queue {} has more than its share, and queue {} less", room.queue, room.by_queue),
    }
}

/// What is said of a gang that has too few pods left.
#[must_use]
pub fn stale(stale: &Stale) -> String {
    let of = if stale.subgroup.is_empty() { String::new() } else { format!(" of subgroup {}", stale.subgroup) };
    let runs = format!("{} of {} pods{of} that it needs are on nodes", stale.has, stale.needs);
    if stale.evicting {
        return format!("{runs}, for longer than its grace period: all its pods are being evicted");
    }
    format!("{runs}; when that lasts for its grace period, all its pods are evicted")
}

fn best_room(reason: &Reason) -> String {
    match &reason.best_domain {
        Some(path) => format!("the best, {}, has room for {}", domain(path), reason.has),
        None => format!("no such domain exists, so there is room for {}", reason.has),
    }
}

fn units(unit: Unit, count: u32) -> String {
    let word = match unit {
        Unit::Pods => "pod",
        Unit::Segments => "segment",
        Unit::Subgroups => "subgroup",
        Unit::Domains => "domain",
    };
    format!("{count} {word}{}", plural(i64::from(count)))
}

fn plural(count: i64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// A mistake as a sentence.
#[must_use]
pub fn problem(problem: &Problem) -> String {
    let object = if problem.object.is_empty() {
        String::new()
    } else {
        format!(" on {}", problem.object)
    };
    format!(
        "{}{object} is \"{}\"; allowed: {}",
        problem.key, problem.value, problem.allowed
    )
}

fn queue_name(reason: &Reason) -> &str {
    reason.queue.as_ref().map_or("", |queue| queue.queue.as_str())
}

fn unit(block: &QueueBlock) -> &'static str {
    match block.resource {
        "gpu" => "GPUs",
        "cpu" => "milli-cores",
        _ => "MB of memory",
    }
}

fn over_quota(block: &QueueBlock) -> String {
    format!(
        "it is not preemptible, and such work stays within the quota: queue {} deserves {} {}, {} are used like that, and {} \
         more are asked for{}",
        block.queue,
        thousandths(block.limit_millis),
        unit(block),
        thousandths(block.used_millis),
        thousandths(block.asked_millis),
        if block.limit_millis == 0 { " (a quota that is left out is 0; -1 is all there is)" } else { "" }
    )
}

fn over_limit(block: &QueueBlock) -> String {
    let unit = unit(block);
    format!(
        "queue {} may use {} {unit}, uses {}, and {} more are asked for{}",
        block.queue,
        thousandths(block.limit_millis),
        thousandths(block.used_millis),
        thousandths(block.asked_millis),
        if block.limit_millis == 0 {
            " (a limit that is left out is 0; -1 is none)"
        } else {
            ""
        }
    )
}

/// A number of thousandths as a decimal.
#[must_use]
pub fn thousandths(millis: i64) -> String {
    let (whole, part) = (millis / 1000, (millis % 1000).abs());
    if part == 0 {
        whole.to_string()
    } else {
        format!("{whole}.{part:03}").trim_end_matches('0').to_owned()
    }
}

/// What stands behind a "no" that a search came to.
#[must_use]
pub fn proof(reason: &Reason) -> Option<String> {
    match &reason.proof {
        Some(Proof::Exhausted { steps }) => Some(format!("proven: every placement was tried, {steps} step{}", plural(*steps as i64))),
        Some(Proof::TooFew { needed, ready, impossible, .. }) => Some(format!(
            "proven: {needed} of {ready} subgroups are needed, and {} can't be placed",
            impossible.len()
        )),
        Some(Proof::Stated | Proof::Counted(_)) | None => None,
    }
}

/// A domain's values, widest first, as people read it.
#[must_use]
pub fn domain(path: &DomainPath) -> String {
    path.iter()
        .map(|(_, value)| value.as_str())
        .collect::<Vec<_>>()
        .join("/")
}

/// A rule as a phrase.
#[must_use]
pub fn rule(rule: &Rule) -> String {
    match rule {
        Rule::Insufficient(resource) => format!("too little {resource} free"),
        Rule::NodeAffinity => "node selector or affinity does not match".to_owned(),
        Rule::Taint(key) => format!("taint {key} not tolerated"),
        Rule::Cordoned => "cordoned".to_owned(),
        Rule::NotReady => "not ready".to_owned(),
        Rule::HostPort(port) => format!("host port {port} taken"),
        Rule::MissingLabel(label) => format!("no label {label}"),
        Rule::VolumeNode => "a volume of the pod cannot be reached".to_owned(),
        Rule::NoVolume => "no volume for a claim of the pod".to_owned(),
        Rule::VolumeLimit(driver) => format!("no more volumes of {driver}"),
        Rule::PodAffinity(key) => format!("no pod that the affinity asks for in its {key}"),
        Rule::PodAntiAffinity(key) => format!("a pod that the anti-affinity avoids in its {key}"),
        Rule::AntiAffinityOfOthers => "a pod there has an anti-affinity against this one".to_owned(),
        Rule::TopologySpread(key) => format!("spread over {key} would be uneven"),
    }
}

fn evidence(reason: &Reason) -> String {
    let mut parts: Vec<String> = reason
        .refusals
        .iter()
        .take(MAX_RULES)
        .map(|(kind, count)| format!("{count} node{} refused: {}", plural(i64::from(*count)), rule(kind)))
        .collect();
    if reason.refusals.len() > MAX_RULES {
        parts.push(format!("{} more rules", reason.refusals.len() - MAX_RULES));
    }
    let unlabelled = reason.unlabelled_nodes;
    let counted = reason
        .refusals
        .iter()
        .any(|(kind, _)| matches!(kind, Rule::MissingLabel(_)));
    if unlabelled > 0 && !counted {
        let level = reason.level.as_deref().unwrap_or("the level");
        parts.push(format!(
            "{unlabelled} node{} without the label {level}",
            plural(i64::from(unlabelled))
        ));
    }
    parts.join(", ")
}

/// A fix as an instruction.
#[must_use]
pub fn fix_text(fix: &Fix) -> String {
    phrase(fix, None)
}

/// A fix as an instruction; the domain that the sentence just named is "there".
fn phrase(fix: &Fix, named: Option<&DomainPath>) -> String {
    let within = match domain(&fix.domain) {
        place if place.is_empty() => String::new(),
        _ if named == Some(&fix.domain) => " there".to_owned(),
        place => format!(" in {place}"),
    };
    let targets = fix.target.join(", ");
    match (fix.kind, fix.target.as_slice()) {
        (FixKind::FreeCapacity, [resource, each]) => format!("free {}{within}", amount(resource, each, fix.count)),
        (FixKind::FreeCapacity, _) => format!("free room for {} more pod{}{within}", fix.count, plural(fix.count)),
        (FixKind::RelaxLevel, [.., level]) if !level.is_empty() => format!("allow a wider level ({level})"),
        (FixKind::RelaxLevel, _) => "allow a wider level".to_owned(),
        (FixKind::AllowDomains, _) => format!("allow {} domain{} of {targets}", fix.count, plural(fix.count)),
        (FixKind::LabelNodes, names) => {
            let stand = if names.len() == 1 { "it stands" } else { "they stand" };
            format!("label {}{within}, if {stand} there: {}", nodes(names.len()), some(names))
        }
        (FixKind::Uncordon, names) => format!("uncordon {}{within}: {}", nodes(names.len()), some(names)),
        (FixKind::RaiseLimit, [queue, resource]) => format!(
            "raise the {resource} limit of queue {queue} to {}",
            thousandths(fix.count)
        ),
        (FixKind::RaiseQuota, [queue, resource]) => format!(
            "raise the {resource} quota of queue {queue} to {}, or let the gang be preempted",
            thousandths(fix.count)
        ),
        (FixKind::RaiseQuota, _) => format!("raise the quota of {targets} to {}", thousandths(fix.count)),
        (FixKind::RaiseLimit, _) => format!("raise the limit of {targets} to {}", thousandths(fix.count)),
        (FixKind::CorrectValue, [key, allowed]) => format!("correct {key}; allowed: {allowed}"),
        (FixKind::CorrectValue, _) => format!("correct {targets}"),
        (FixKind::CreateObject, _) => format!("create {targets}"),
        (FixKind::NameQueue, named) => {
            let more = fix.count.saturating_sub(i64::try_from(named.len()).unwrap_or(i64::MAX));
            let and = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("name one that takes work ({targets}{and})")
        }
        (FixKind::RestoreNodes, names) => format!("bring {} back{within}: {}", nodes(names.len()), some(names)),
        (FixKind::RemoveTaint, [key, names @ ..]) => format!("remove the taint {key} from {}{within}: {}", nodes(names.len()), some(names)),
        (FixKind::RemoveTaint, []) => "remove a taint".to_owned(),
        (FixKind::LowerMinimum, [subgroup, ..]) if !subgroup.is_empty() => {
            format!("start subgroup {subgroup} with a minimum of {} pod{}", fix.count, plural(fix.count))
        }
        (FixKind::LowerMinimum, _) => format!("start with a minimum of {} pod{}", fix.count, plural(fix.count)),
        (FixKind::ChangeQueue, _) => format!("use the queue {targets}"),
        (FixKind::EndWork, titles) => {
            format!("end {} ({} pod{}), which runs{within}", some(titles), fix.count, plural(fix.count))
        }
        (FixKind::AddNodes, _) => format!("add {} like {targets}{within}", nodes(usize::try_from(fix.count).unwrap_or(0))),
    }
}

/// Names that one phrase lists.
const MAX_NAMES: usize = 4;

fn some(names: &[String]) -> String {
    berth_discovery::names::listed(names.iter().map(String::as_str), MAX_NAMES)
}

fn nodes(count: usize) -> String {
    format!("{count} node{}", if count == 1 { "" } else { "s" })
}

/// Everything that has to be done for a gang to fit, as one instruction.
#[must_use]
pub fn remedy(fixes: &[Fix]) -> String {
    fixes.iter().map(fix_text).collect::<Vec<_>>().join(", and ")
}

/// Room for so many pods, in the resource's own unit.
fn amount(resource: &str, each: &str, pods: i64) -> String {
    let total = each.parse::<i64>().ok().and_then(|each| each.checked_mul(pods));
    match (resource, total) {
        (_, None) => format!("room for {pods} more pod{}", plural(pods)),
        ("cpu", Some(total)) => format!("{} more cpu", thousandths(total)),
        ("memory" | "ephemeral-storage", Some(total)) => format!(
            "{} Mi more {resource}",
            total.div_euclid(1 << 20) + i64::from(total % (1 << 20) != 0)
        ),
        (_, Some(total)) => format!("{total} more {resource}"),
    }
}

#[cfg(test)]
mod tests {
    use berth_engine::facts::ProblemCode;

    use super::*;

    fn too_small() -> Reason {
        let path = vec![("topology.kubernetes.io/region".to_owned(), "asia-northeast3".to_owned())];
        let free = Fix {
            kind: FixKind::FreeCapacity,
            verified: true,
            domain: path.clone(),
            count: 1,
            target: vec!["nvidia.com/gpu".to_owned(), "1".to_owned()],
        };
        let relax = Fix {
            kind: FixKind::RelaxLevel,
            verified: true,
            domain: Vec::new(),
            count: 0,
            target: Vec::new(),
        };
        Reason {
            level: Some("topology.kubernetes.io/region".to_owned()),
            best_domain: Some(path),
            has: 1,
            needs: 2,
            fixes: vec![free, relax],
            ..Reason::new(Code::RequiredDomainTooSmall)
        }
    }

    #[test]
    fn a_domain_too_small_reads_as_one_sentence() {
        assert_eq!(
            sentence(&too_small()),
            "needs 2 pods in one topology.kubernetes.io/region; the best, asia-northeast3, has room for 1: free 1 more \
             nvidia.com/gpu there, or allow a wider level"
        );
    }

    #[test]
    fn evidence_follows_the_sentence() {
        let refusals = vec![
            (Rule::Insufficient("nvidia.com/gpu".to_owned()), 3),
            (Rule::Cordoned, 1),
        ];
        let reason = Reason {
            subgroup: "worker".to_owned(),
            fixes: Vec::new(),
            refusals,
            unlabelled_nodes: 2,
            ..too_small()
        };
        let text = sentence(&reason);
        assert!(text.starts_with("subgroup worker needs 2 pods"), "{text}");
        assert!(text.ends_with("(3 nodes refused: too little nvidia.com/gpu free, 1 node refused: cordoned, 2 nodes without the label topology.kubernetes.io/region)"), "{text}");
    }

    /// The titles of a page behind so many `#`, sorted.
    fn titles<'a>(page: &'a str, mark: &str) -> Vec<&'a str> {
        let mut titles: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(mark)).collect();
        titles.sort_unstable();
        titles
    }

    #[test]
    fn the_page_of_reasons_is_complete() {
        let page = include_str!("../docs/reasons.md");
        let mut codes: Vec<&str> = Code::ALL.iter().map(|code| code.name()).chain(["Mistakes", "Rules that refuse a node"]).collect();
        codes.sort_unstable();
        assert_eq!(titles(page, "## "), codes);
        let mut mistakes: Vec<&str> = ProblemCode::ALL.iter().map(|code| code.as_str()).collect();
        mistakes.sort_unstable();
        let mut rules = Rule::NAMES;
        rules.sort_unstable();
        for (title, wanted) in [("Mistakes", mistakes.as_slice()), ("Rules that refuse a node", &rules)] {
            let (_, section) = page.split_once(&format!("\n## {title}\n")).expect("the section is there");
            let section = section.split("\n## ").next().unwrap_or_default();
            assert_eq!(titles(section, "### "), wanted);
        }
        assert!(Code::ALL.iter().all(|code| !head(&Reason::new(*code)).is_empty()));
    }

    #[test]
    fn thousandths_are_decimals() {
        assert_eq!((thousandths(2_500).as_str(), thousandths(4_000).as_str()), ("2.5", "4"));
    }
}
