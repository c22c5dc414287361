package wording

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
)

// Subject describes what a clause begins with.
type Subject int

// The subjects. OfPool, It and Its are the pool, too, and a Field is one of its.
const (
	None Subject = iota
	Pod
	Pool
	OfPool
	It
	Its
	Field
)

// Clause is a sentence that begins with its subject, without a full stop.
type Clause struct {
	Subject Subject
	// Text follows the subject.
	Text string
	// OfPool follows the pool in a second part, after what the pod needs; empty if the pool has no part in it.
	OfPool string
}

func clause(s Subject, format string, args ...any) Clause {
	return Clause{Subject: s, Text: fmt.Sprintf(format, args...)}
}

// String is the clause where the pool has just been named.
func (c Clause) String() string {
	subject := [...]string{None: "", Pod: "the pod ", Pool: "the pool ", OfPool: "the pool's ", It: "it ", Its: "its ", Field: ""}
	return subject[c.Subject] + c.Text + c.ofPool("the pool")
}

// ofPool is the second part.
func (c Clause) ofPool(pool string) string {
	if c.OfPool == "" {
		return ""
	}
	return "; " + pool + " " + c.OfPool
}

// but adds what the pool allows only. What the pod needs comes first: that is what its owner knows.
func (c Clause) but(allowed string) Clause {
	c.OfPool = "allows only " + allowed
	return c
}

// Naming is the clause about the pod, which has just been named, with the name of the pool. The remark follows in parentheses; it may be
// empty.
func (c Clause) Naming(pool, remark string) string {
	name, text := "NodePool "+pool, ""
	switch c.Subject {
	case Pod:
		if c.OfPool != "" {
			text = "it " + c.Text + c.ofPool(name)
			break
		}
		if remark != "" {
			remark = "; " + remark
		}
		return "it " + c.Text + " (" + name + remark + ")"
	case Pool, It:
		text = name + " " + c.Text
	case OfPool, Its, Field:
		text = name + "'s " + c.Text
	default:
		if text = name + ": " + c.Text; c.OfPool != "" {
			text = c.Text + c.ofPool(name)
		}
	}
	if remark != "" {
		text += " (" + remark + ")"
	}
	return text
}

// Reason is the sentence of a reason, with where the pod would fit. It names labels by their keys.
func Reason(r rejection.Reason) string { return LabelKeys.Reason(r) }

// Reason is the sentence of a reason, with where the pod would fit.
func (s Style) Reason(r rejection.Reason) string {
	text := s.Clause(r).String() + allow(r)
	switch {
	case r.Nearest == nil:
	case r.Together > 1:
		return fmt.Sprintf("%s; but for these %d reasons it fits %s", text, r.Together, r.Nearest)
	case r.Together == 1:
		return fmt.Sprintf("fits %s, but %s", r.Nearest, text)
	}
	return text
}

// Style describes how sentences name labels.
type Style bool

// The styles: by their keys, or the well-known ones by the words that people use.
const (
	LabelKeys  Style = false
	LabelWords Style = true
)

// Clause is the sentence of a reason, without where the pod would fit.
func (s Style) Clause(r rejection.Reason) Clause {
	rule := r.Rule
	if rule == nil {
		return withoutRule(r.Code)
	}
	switch {
	case rule.Labels != nil:
		return s.labels(rule.Labels)
	case rule.Contradiction != nil:
		return s.contradiction(rule.Contradiction)
	case len(rule.Taints) > 0:
		return taints(rule.Taints)
	case rule.Sizes != nil:
		return s.sizes(rule.Sizes)
	case len(rule.Limits) > 0:
		return limits(rule.Limits)
	case len(rule.MinValues) > 0:
		return minValues(rule.MinValues)
	case rule.Offerings != nil:
		return offerings(rule.Offerings)
	case rule.Domains != nil:
		return s.topology(rule.Domains)
	case len(rule.Ports) > 0:
		return clause(None, "a DaemonSet takes the pod's host port (%s) on every node that would suit", all(rule.Ports))
	case rule.VolumeClaim != nil:
		return volume(rule.VolumeClaim)
	case rule.ResourceClaims != nil:
		return devices(rule.ResourceClaims)
	case rule.Missing != nil:
		return missing(rule.Missing)
	case rule.PodGroup != nil:
		return s.podGroup(rule.PodGroup)
	case rule.Bound != nil:
		return bound(rule.Bound)
	case rule.Node != nil:
		return clause(None, "would schedule against uninitialized nodeclaim/%s, node/%s", rule.Node.NodeClaim, rule.Node.Name)
	}
	if rule.Stated == "" {
		return withoutRule(r.Code)
	}
	return Clause{Text: rule.Stated}
}

// withoutRule is the sentence of a code that needs no data.
func withoutRule(code rejection.Code) Clause {
	switch code {
	case rejection.NoPools:
		return clause(None, "no NodePool can launch nodes, and no existing node has room")
	case rejection.NotManaged:
		return clause(Pod, "requires nodes that belong to no NodePool")
	case rejection.Reserved:
		return clause(None, "nodes in flight take the capacity reservations that would fit")
	case rejection.Limits:
		return clause(OfPool, "limits together leave no suitable instance type")
	case rejection.MinValues:
		return clause(None, "too few instance types are left to choose from in any one domain that the pod's topology rules allow")
	case rejection.Offering:
		return clause(Its, "node class offers no instance types")
	case rejection.DeviceClaims:
		return clause(Pod, "has resource claims (dynamic resource allocation), for which no nodes are planned")
	case rejection.HostPort:
		return clause(None, "a DaemonSet takes the pod's host port on every node that would suit")
	case rejection.Topology:
		return clause(Pod, "can be scheduled only after others")
	}
	return Clause{Text: string(code)}
}

// LabelWord names a well-known label as people do; others by their key.
func LabelWord(key string) string {
	switch key {
	case corev1.LabelTopologyZone:
		return "zone"
	case karpv1.LabelCapacityType:
		return "capacity type"
	case corev1.LabelArchStable:
		return "architecture"
	case corev1.LabelInstanceTypeStable:
		return "instance type"
	case awsv1.LabelInstanceCategory:
		return "instance category"
	case awsv1.LabelInstanceFamily:
		return "instance family"
	}
	return key
}
