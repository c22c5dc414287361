// Package validate checks a Plan against its Snapshot, rule by rule, in the simplest way.
//
// It is an oracle for the scheduler: it shares no code with the search, so that a mistake there does not hide itself
// here. It reads what a plan would send to the API server as the API server and kube-scheduler read it, label by
// label and value by value. It sees the finished plan only, not the order in which pods were placed, and checks what
// must hold in the end, whichever of a claim's types and offerings is launched.
//
// Plan and Check find what is wrong with what a plan does. Choices finds what is wrong with what it does not do.
package validate

import (
	"errors"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// Violation is one violated rule.
type Violation struct {
	Message string
	// Launches are the launches of the plan (indices) that violate the rule, sorted; empty if it is about something else.
	Launches []int
}

// Error is the message.
func (v Violation) Error() string { return v.Message }

// Plan returns every violation of the plan, joined; nil if there is none.
func Plan(s *snapshot.Snapshot, p schedule.Plan) error { return join(Check(s, p)) }

func join(violations []Violation) error {
	errs := make([]error, len(violations))
	for i, v := range violations {
		errs[i] = v
	}
	return errors.Join(errs...)
}

// Check returns every violation of the plan.
func Check(s *snapshot.Snapshot, p schedule.Plan) []Violation {
	c := newCheck(s, p)
	c.podsOnce()
	c.podGroups()
	c.groupDomains()
	c.placements()
	c.launches()
	c.volumes()
	c.sharedClaims()
	c.limits()
	c.reservations()
	c.devices()
	c.antiAffinity()
	c.topologySpread()
	c.affinity()
	c.stats()
	return c.found
}

type check struct {
	s     *snapshot.Snapshot
	p     schedule.Plan
	found []Violation

	// planned are the pods of the snapshot that are to be scheduled.
	planned map[types.UID]bool
	// hosts are the snapshot's nodes, in its order, and after them the plan's launches.
	hosts        []*host
	labelDemands map[*corev1.Pod]*labelDemands
	// enforced are those of pods to which their scheduler adds some.
	enforced map[*corev1.Pod]*labelDemands
	pods     *podIndex
}

func newCheck(s *snapshot.Snapshot, p schedule.Plan) *check {
	c := &check{
		s: s, p: p, planned: make(map[types.UID]bool, len(s.Pods)),
		labelDemands: map[*corev1.Pod]*labelDemands{}, enforced: map[*corev1.Pod]*labelDemands{},
	}
	for _, pod := range s.Pods {
		c.planned[pod.UID] = true
	}
	for i := range s.Nodes {
		c.hosts = append(c.hosts, c.existing(&s.Nodes[i]))
	}
	for i := range p.Launches {
		c.hosts = append(c.hosts, c.launched(i, &p.Launches[i]))
	}
	c.pods = c.scheduledPods()
	return c
}

// fail records a violation that is not about launches.
func (c *check) fail(format string, args ...any) { c.failAt(nil, format, args...) }

// failAt records a violation on some hosts.
func (c *check) failAt(at []*host, format string, args ...any) {
	v := Violation{Message: fmt.Sprintf(format, args...)}
	for _, pl := range at {
		if pl.launch != nil {
			v.Launches = append(v.Launches, pl.index)
		}
	}
	slices.Sort(v.Launches)
	v.Launches = slices.Compact(v.Launches)
	c.found = append(c.found, v)
}

func name(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// podsOnce: every pod of the snapshot is in the plan exactly once, and no other pod is.
func (c *check) podsOnce() {
	seen := map[types.UID]int{}
	at := map[types.UID][]*host{}
	for _, pl := range c.hosts {
		for _, pod := range pl.pods {
			seen[pod.UID]++
			at[pod.UID] = append(at[pod.UID], pl)
			if !c.planned[pod.UID] {
				c.failAt([]*host{pl}, "pod %s is in the plan but not in the snapshot", name(pod))
			}
		}
	}
	for _, r := range c.p.Rejected {
		seen[r.Pod.UID]++
		if !c.planned[r.Pod.UID] {
			c.fail("pod %s is in the plan but not in the snapshot", name(r.Pod))
		}
		if len(r.Reasons) == 0 {
			c.fail("pod %s is rejected without a reason", name(r.Pod))
		}
		for _, reason := range r.Reasons {
			if reason.Code == "" || wording.Reason(reason) == "" {
				c.fail("pod %s is rejected for an empty reason", name(r.Pod))
			}
		}
	}
	for _, pod := range c.s.Pods {
		if seen[pod.UID] != 1 {
			c.failAt(at[pod.UID], "pod %s is in the plan %d times", name(pod), seen[pod.UID])
		}
	}
}

// priceTolerance, in $/h, is for the rounding of sums of prices.
const priceTolerance = 1e-6

// stats: the sums are right, and the lower bound is one.
func (c *check) stats() {
	total := 0.0
	for i := range c.p.Launches {
		total += c.p.Launches[i].Offering.Price
	}
	stats := c.p.Stats
	if math.Abs(total-stats.HourlyCost) > priceTolerance {
		c.fail("the launches cost %v $/h together, the plan has %v", total, stats.HourlyCost)
	}
	overhead := c.s.Settings.NodeCost * float64(len(c.p.Launches))
	if math.Abs(overhead-stats.NodeCost) > priceTolerance {
		c.fail("the overhead of the launches is %v $/h, the plan has %v", overhead, stats.NodeCost)
	}
	if stats.LowerBound > total+overhead+priceTolerance {
		c.fail("the plan costs %v $/h, its lower bound is %v", total+overhead, stats.LowerBound)
	}
	if stats.LowerBound < 0 || math.IsNaN(stats.LowerBound) {
		c.fail("the lower bound is %v", stats.LowerBound)
	}
	if stats.Pods != len(c.planned) {
		c.fail("the plan counts %d pods, the snapshot has %d", stats.Pods, len(c.planned))
	}
}
