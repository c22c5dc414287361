// Package validate checks a Plan against its Snapshot, rule by rule, in the plainest way there is.
//
// It shares no code with the search, so that a mistake there does not excuse itself here: what a plan would send to the
// API server is read as the API server and the scheduler read it, label by label and value by value. It knows the
// finished plan only, not the order in which pods were placed, and checks what must hold in the end, whichever of a claim's
// types and offerings is launched.
//
// Plan and Check tell what is wrong with what a plan does. Choices tells what is wrong with what it leaves undone.
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
)

// Violation is one broken rule.
type Violation struct {
	Message string
	// Launches are those of the plan (indices) that break the rule, sorted; none if it is about something else.
	Launches []int
}

// Error is the message.
func (v Violation) Error() string { return v.Message }

// Plan returns every rule that the plan breaks, joined; nil if none.
func Plan(s *snapshot.Snapshot, p schedule.Plan) error { return join(Check(s, p)) }

func join(violations []Violation) error {
	errs := make([]error, len(violations))
	for i, v := range violations {
		errs[i] = v
	}
	return errors.Join(errs...)
}

// Check returns every rule that the plan breaks.
func Check(s *snapshot.Snapshot, p schedule.Plan) []Violation {
	c := newCheck(s, p)
	c.once()
	c.nodes()
	c.launches()
	c.volumes()
	c.limits()
	c.reservations()
	c.devices()
	c.apart()
	c.spreads()
	c.together()
	c.stats()
	return c.found
}

type check struct {
	s     *snapshot.Snapshot
	p     schedule.Plan
	found []Violation

	// planned are the pods of the snapshot that wait for a place.
	planned map[types.UID]bool
	// places are the snapshot's nodes, in its order, and after them the plan's launches.
	places []*place
	wants  map[*corev1.Pod]*wants
	crowd  *crowd
}

func newCheck(s *snapshot.Snapshot, p schedule.Plan) *check {
	c := &check{s: s, p: p, planned: make(map[types.UID]bool, len(s.Pods)), wants: map[*corev1.Pod]*wants{}}
	for _, pod := range s.Pods {
		c.planned[pod.UID] = true
	}
	for i := range s.Nodes {
		c.places = append(c.places, c.existing(&s.Nodes[i]))
	}
	for i := range p.Launches {
		c.places = append(c.places, c.bought(i, &p.Launches[i]))
	}
	c.crowd = c.gather()
	return c
}

// fail records a broken rule that is nobody's in particular.
func (c *check) fail(format string, args ...any) { c.failAt(nil, format, args...) }

// failAt records a rule broken in some places.
func (c *check) failAt(at []*place, format string, args ...any) {
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

// once: every pod of the snapshot is in the plan exactly once, and no other is.
func (c *check) once() {
	seen := map[types.UID]int{}
	at := map[types.UID][]*place{}
	for _, pl := range c.places {
		for _, pod := range pl.pods {
			seen[pod.UID]++
			at[pod.UID] = append(at[pod.UID], pl)
			if !c.planned[pod.UID] {
				c.failAt([]*place{pl}, "pod %s is in the plan but not in the snapshot", name(pod))
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
			if reason.Code == "" || reason.Message == "" {
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

// cents is the rounding, in $/h, that sums of prices are allowed.
const cents = 1e-6

// stats: the sums are right, and the bound is one.
func (c *check) stats() {
	total := 0.0
	for i := range c.p.Launches {
		total += c.p.Launches[i].Offering.Price
	}
	stats := c.p.Stats
	if math.Abs(total-stats.HourlyCost) > cents {
		c.fail("the launches cost %v $/h together, the plan says %v", total, stats.HourlyCost)
	}
	besides := c.s.Settings.NodeCost * float64(len(c.p.Launches))
	if math.Abs(besides-stats.NodeCost) > cents {
		c.fail("the launches cost %v $/h beside their price, the plan says %v", besides, stats.NodeCost)
	}
	if stats.LowerBound > total+besides+cents {
		c.fail("the plan costs %v $/h, its lower bound is %v", total+besides, stats.LowerBound)
	}
	if stats.LowerBound < 0 || math.IsNaN(stats.LowerBound) {
		c.fail("the lower bound is %v", stats.LowerBound)
	}
	if stats.Pods != len(c.planned) {
		c.fail("the plan counts %d pods, the snapshot has %d", stats.Pods, len(c.planned))
	}
}
