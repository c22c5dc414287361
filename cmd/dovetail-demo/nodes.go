package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/provisioning"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/planner"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

const (
	// joinTime is from a launch to a ready node, drainTime from a deletion to the end of the instance.
	joinTime, drainTime = 40 * time.Second, time.Minute
	// driftAt is when a new image comes.
	driftAt = 9*time.Hour + 30*time.Minute
)

// command is a disruption in progress: first its launches become ready, then its nodes drain.
type command struct {
	id                string
	removes, launches []string
	// ends is when the instances are gone; zero before they drain.
	ends time.Time
}

func (w *world) waiting() bool {
	return slices.ContainsFunc(w.pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == "" })
}

// launch makes the claim of a launch, and its instance.
func (w *world) launch(r *recorder.Recorder, l *schedule.Launch) string {
	claim, err := provisioning.Claim(l, planner.Labels())
	if err != nil {
		panic(err) // the engine has made it of a valid pool
	}
	w.count++
	name := fmt.Sprintf("%s-%s", l.Pool.Name, suffix(w.count))
	typ, zone := l.InstanceTypes[0], l.Offering.Zone
	claim.GenerateName, claim.Name, claim.UID, claim.ResourceVersion = "", name, typesUID("claim", name), w.version()
	claim.CreationTimestamp = metav1.NewTime(w.now)
	for _, list := range [][]karpv1.Requirement{typ.Requirements.API(), l.Offering.Requirements.API()} {
		for _, one := range list {
			if one.Operator == corev1.NodeSelectorOpIn && len(one.Values) == 1 {
				claim.Labels[one.Key] = one.Values[0]
			}
		}
	}
	claim.Labels[corev1.LabelTopologyZone], claim.Labels[karpv1.LabelCapacityType] = zone, l.Offering.CapacityType
	claim.Status.ProviderID = fmt.Sprintf("aws:///%s/i-0%016x", zone, uint64(fnvOf(name))<<20|uint64(w.count))
	claim.Status.Capacity, claim.Status.Allocatable = typ.Capacity, typ.Allocatable
	claim.Status.ImageID = w.image()
	condition.SetTrue(claim, karpv1.ConditionLaunched, w.now)
	w.claims = append(w.claims, claim)
	w.lives[name] = &life{decision: l.ID, joins: w.now.Add(joinTime), changed: w.now, offering: l.Offering, typ: typ}
	w.step(r, l.ID, recorder.StepCreated, name)
	w.step(r, l.ID, recorder.StepLaunched, name)
	return name
}

func (w *world) image() string {
	if w.now.Before(start().Add(driftAt)) {
		return "ami-0a11ce0000000001"
	}
	return "ami-0a11ce0000000002"
}

// changeClaim replaces a claim by a changed copy.
func (w *world) changeClaim(name string, edit func(*karpv1.NodeClaim)) {
	at := slices.IndexFunc(w.claims, func(c *karpv1.NodeClaim) bool { return c.Name == name })
	c := w.claims[at].DeepCopy()
	edit(c)
	c.ResourceVersion = w.version()
	w.claims = slices.Clone(w.claims)
	w.claims[at] = c
}

// joinNodes makes the Nodes of the instances that have booted.
func (w *world) joinNodes(r *recorder.Recorder) {
	for _, c := range slices.Clone(w.claims) {
		l := w.lives[c.Name]
		if c.Status.NodeName != "" || c.DeletionTimestamp != nil || w.now.Before(l.joins) {
			continue
		}
		w.count++
		name := fmt.Sprintf("ip-10-0-%d-%d.ec2.internal", w.count/250%250, w.count%250)
		labels := maps.Clone(c.Labels)
		maps.Copy(labels, map[string]string{
			corev1.LabelHostname: name, karpv1.LabelRegistered: "true", karpv1.LabelInitialized: "true", corev1.LabelTopologyRegion: "us-east-1",
		})
		w.nodes = append(w.nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: typesUID("node", name), ResourceVersion: w.version(), Labels: labels, CreationTimestamp: metav1.NewTime(w.now),
				Finalizers: []string{karpv1.FinalizerTermination},
			},
			Spec: corev1.NodeSpec{ProviderID: c.Status.ProviderID, Taints: c.Spec.Taints},
			Status: corev1.NodeStatus{
				Capacity: c.Status.Capacity, Allocatable: c.Status.Allocatable,
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now)}},
			},
		})
		w.changeClaim(c.Name, func(c *karpv1.NodeClaim) {
			c.Status.NodeName = name
			condition.SetTrue(c, karpv1.ConditionRegistered, w.now)
			condition.SetTrue(c, karpv1.ConditionInitialized, w.now)
		})
		w.step(r, l.decision, recorder.StepRegistered, c.Name)
		w.step(r, l.decision, recorder.StepInitialized, c.Name)
		l.changed = w.now
	}
}

// begin begins a command.
func (w *world) begin(r *recorder.Recorder, c *disrupt.Command) {
	out := &command{id: c.ID}
	w.step(r, c.ID, recorder.StepStarted, "")
	for i := range c.Plan.Launches {
		c.Plan.Launches[i].ID = c.ID
		out.launches = append(out.launches, w.launch(r, &c.Plan.Launches[i]))
	}
	for _, candidate := range c.Candidates {
		out.removes = append(out.removes, candidate.Node.Claim)
	}
	w.commands = append(w.commands, out)
	w.advance(r)
}

// advance carries commands on.
func (w *world) advance(r *recorder.Recorder) {
	for _, c := range slices.Clone(w.commands) {
		switch {
		case c.ends.IsZero() && !slices.ContainsFunc(c.launches, func(name string) bool { return w.nodeOf(name) == "" }):
			c.ends = w.now.Add(drainTime)
			for _, name := range c.removes {
				w.drain(r, c.id, name)
			}
		case !c.ends.IsZero() && !w.now.Before(c.ends):
			for _, name := range c.removes {
				w.terminate(r, c.id, name)
			}
			w.commands = slices.DeleteFunc(w.commands, func(other *command) bool { return other == c })
		}
	}
}

func (w *world) nodeOf(claim string) string {
	at := slices.IndexFunc(w.claims, func(c *karpv1.NodeClaim) bool { return c.Name == claim })
	if at < 0 {
		return ""
	}
	return w.claims[at].Status.NodeName
}

// drain deletes a claim: its pods are evicted, and their ReplicaSets make others.
func (w *world) drain(r *recorder.Recorder, id, claim string) {
	node := w.nodeOf(claim)
	w.changeClaim(claim, func(c *karpv1.NodeClaim) { c.DeletionTimestamp = new(metav1.NewTime(w.now)) })
	at := slices.IndexFunc(w.nodes, func(n *corev1.Node) bool { return n.Name == node })
	n := w.nodes[at].DeepCopy()
	n.DeletionTimestamp, n.ResourceVersion = new(metav1.NewTime(w.now)), w.version()
	n.Spec.Taints = append(n.Spec.Taints, karpv1.TaintDisrupted())
	w.nodes = slices.Clone(w.nodes)
	w.nodes[at] = n
	w.step(r, id, recorder.StepDeleting, claim)
	for _, p := range slices.Clone(w.pods) {
		if p.Spec.NodeName != node {
			continue
		}
		w.endPod(p)
		for i := range w.workloads {
			if w.workloads[i].name == p.Labels["app"] {
				w.addPod(&w.workloads[i])
			}
		}
	}
	w.step(r, id, recorder.StepDrained, claim)
}

func (w *world) terminate(r *recorder.Recorder, id, claim string) {
	node := w.nodeOf(claim)
	w.nodes = slices.DeleteFunc(slices.Clone(w.nodes), func(n *corev1.Node) bool { return n.Name == node })
	w.claims = slices.DeleteFunc(slices.Clone(w.claims), func(c *karpv1.NodeClaim) bool { return c.Name == claim })
	delete(w.lives, claim)
	w.step(r, id, recorder.StepTerminated, claim)
}

// endPod removes a pod, and notes the change of its node.
func (w *world) endPod(p *corev1.Pod) {
	w.pods = slices.DeleteFunc(slices.Clone(w.pods), func(other *corev1.Pod) bool { return other == p })
	w.touch(p.Spec.NodeName)
}

func (w *world) touch(node string) {
	for _, c := range w.claims {
		if node != "" && c.Status.NodeName == node {
			w.lives[c.Name].changed = w.now
		}
	}
}

// bind does what kube-scheduler does with pods that fit on nodes: the fullest one first, as the engine places them.
func (w *world) bind() {
	if !w.waiting() {
		return
	}
	s := w.snapshot(nil)
	plan := schedule.Solve(s, schedule.DefaultBudget())
	for i := range plan.Placements {
		place := &plan.Placements[i]
		if !slices.ContainsFunc(w.nodes, func(n *corev1.Node) bool { return n.Name == place.Node }) {
			continue // it has not joined
		}
		for _, pod := range place.Pods {
			at := slices.IndexFunc(w.pods, func(p *corev1.Pod) bool { return p.UID == pod.UID })
			if at < 0 || w.pods[at].Spec.NodeName != "" {
				continue
			}
			p := w.pods[at].DeepCopy()
			p.Spec.NodeName, p.Status.Phase, p.ResourceVersion = place.Node, corev1.PodRunning, w.version()
			p.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now)},
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now)},
			}
			w.pods = slices.Clone(w.pods)
			w.pods[at] = p
			w.touch(place.Node)
		}
	}
}

// judge sets which nodes have had no pod come or go for consolidateAfter.
func (w *world) judge() {
	for _, c := range slices.Clone(w.claims) {
		if c.Status.NodeName == "" || c.DeletionTimestamp != nil {
			continue
		}
		at := slices.IndexFunc(w.pools, func(p cluster.Pool) bool { return p.Name == c.Labels[karpv1.LabelNodePool] })
		quiet := w.now.Sub(w.lives[c.Name].changed) >= *w.pools[at].Spec.Disruption.ConsolidateAfter.Duration
		if quiet == condition.IsTrue(c, karpv1.ConditionConsolidatable) {
			continue
		}
		w.changeClaim(c.Name, func(c *karpv1.NodeClaim) {
			if quiet {
				condition.SetTrue(c, karpv1.ConditionConsolidatable, w.now)
			} else {
				condition.Clear(c, karpv1.ConditionConsolidatable, w.now)
			}
		})
	}
}

// drift marks the nodes with the old image once there is a new one.
func (w *world) drift() {
	if w.drifted || w.now.Before(start().Add(driftAt)) {
		return
	}
	w.drifted = true
	for _, c := range slices.Clone(w.claims) {
		w.changeClaim(c.Name, func(c *karpv1.NodeClaim) {
			why := condition.Because("AMIDrift", "the image is not that of the EC2NodeClass")
			condition.SetTrueWithReason(c, karpv1.ConditionDrifted, why, w.now)
		})
	}
}
