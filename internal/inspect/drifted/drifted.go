// Package drifted finds out which field a node drifted by: what its NodeClaim was launched with, and what its NodePool
// and node class state now.
package drifted

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Reasons of the condition Drifted that come from the node class. They are those of Karpenter, too.
const (
	nodeClass           = "NodeClassDrift"
	ami                 = "AMIDrift"
	subnet              = "SubnetDrift"
	securityGroup       = "SecurityGroupDrift"
	capacityReservation = "CapacityReservationDrift"
)

// Drift describes how a node differs from what its pool would launch now.
type Drift struct {
	// Reason is that of the condition Drifted.
	Reason string  `json:"reason"`
	Fields []Field `json:"fields"`
	// Since is the time when the claim was marked; nil if it is not marked yet.
	Since *time.Time `json:"since,omitempty"`
}

// Field is a field that differs.
type Field struct {
	// Object is like NodePool/general.
	Object string `json:"object"`
	Field  string `json:"field"`
	// Old holds what the node has, New what the object states now; empty where there is none, or where no object has it.
	Old string `json:"old"`
	New string `json:"new"`
}

// String is like "NodePool/general spec.template.spec.expireAfter: 720h -> 24h".
func (f Field) String() string {
	where := strings.TrimSpace(f.Object + " " + f.Field)
	if f.Old == "" && f.New == "" {
		return where
	}
	return fmt.Sprintf("%s: %s -> %s", where, cmp.Or(f.Old, "none"), cmp.Or(f.New, "none"))
}

// Text is the drift in words.
func (d *Drift) Text() string {
	if len(d.Fields) == 0 {
		return d.Reason
	}
	parts := make([]string, 0, len(d.Fields))
	for _, f := range d.Fields {
		parts = append(parts, f.String())
	}
	return d.Reason + ": " + wording.List(parts)
}

// Of is the drift of a claim; nil if it has not drifted. A claim that is not marked, but differs from its pool, is about
// to be.
func Of(v *inspect.View, claim *karpv1.NodeClaim) *Drift {
	pool := poolOf(v, claim)
	out := &Drift{Fields: []Field{}}
	if c, _ := condition.Get(claim, karpv1.ConditionDrifted); c.Status == metav1.ConditionTrue {
		since := c.LastTransitionTime.UTC()
		out.Reason, out.Since = cmp.Or(c.Reason, "Drifted"), &since
	} else if pool != nil && condition.IsTrue(claim, karpv1.ConditionLaunched) {
		out.Reason, _ = disrupt.DriftReason(claim, pool, v.Snapshot.Labels)
	}
	if out.Reason == "" {
		return nil
	}
	if out.Reason == disrupt.ResizeDeferred {
		c, _ := condition.Get(claim, karpv1.ConditionDrifted)
		out.Fields = append(out.Fields, Field{Field: c.Message})
		return out
	}
	if known, ok := v.Drifted[claim.Name]; ok && len(known.Fields) > 0 {
		for _, f := range known.Fields {
			out.Fields = append(out.Fields, Field{Field: f})
		}
		return out
	}
	if pool != nil {
		compared := Comparison{
			Claim: claim, Pool: pool, Class: v.NodeClasses[pool.Spec.Template.Spec.NodeClassRef.Name], Labels: v.Snapshot.Labels,
		}
		out.Fields = append(out.Fields, compared.Fields(out.Reason)...)
	}
	return out
}

// Comparison is a claim with its pool and the pool's node class, which is nil if there is none.
type Comparison struct {
	Claim  *karpv1.NodeClaim
	Pool   *karpv1.NodePool
	Class  *awsv1.EC2NodeClass
	Labels requirement.Labels
}

func poolOf(v *inspect.View, claim *karpv1.NodeClaim) *karpv1.NodePool {
	name := claim.Labels[karpv1.LabelNodePool]
	if i := slices.IndexFunc(v.NodePools, func(p *karpv1.NodePool) bool { return p.Name == name }); i >= 0 {
		return v.NodePools[i]
	}
	return nil
}

// Fields returns what explains a reason of the condition Drifted, as far as the objects show it.
func (c Comparison) Fields(reason string) []Field {
	switch reason {
	case disrupt.NodePoolDrifted:
		return template(c.Labels, c.Claim, c.Pool)
	case disrupt.RequirementsDrifted:
		return requirements(c.Labels, c.Claim, c.Pool)
	case disrupt.InstanceTypeNotFound:
		return []Field{{
			Object: "NodePool/" + c.Pool.Name, Field: "instance type",
			Old: c.Claim.Labels[corev1.LabelInstanceTypeStable], New: "not offered any more",
		}}
	}
	return ofClass(c.Claim, "EC2NodeClass/"+c.Pool.Spec.Template.Spec.NodeClassRef.Name, c.Class, reason)
}

// ofClass are the fields of the node class. What runs on the instance is known only as far as the claim names it.
func ofClass(claim *karpv1.NodeClaim, object string, class *awsv1.EC2NodeClass, reason string) []Field {
	if class == nil {
		return nil
	}
	one := func(field, old string, now []string) []Field {
		return []Field{{Object: object, Field: field, Old: old, New: wording.List(now)}}
	}
	switch reason {
	case nodeClass:
		const key = awsv1.AnnotationNodeClassHash
		return one("spec (a field that instances are launched with; hash)", claim.Annotations[key], []string{class.Annotations[key]})
	case ami:
		var ids []string
		for _, a := range class.Status.AMIs {
			ids = append(ids, a.ID)
		}
		return one("status.amis", claim.Status.ImageID, ids)
	case subnet:
		var ids []string
		for _, s := range class.Status.Subnets {
			ids = append(ids, s.ID)
		}
		return one("status.subnets", "another subnet", ids)
	case securityGroup:
		var ids []string
		for _, g := range class.Status.SecurityGroups {
			ids = append(ids, g.ID)
		}
		return one("status.securityGroups", "other groups", ids)
	case capacityReservation:
		var ids []string
		for _, r := range class.Status.CapacityReservations {
			ids = append(ids, r.ID)
		}
		return one("status.capacityReservations", claim.Labels[awsv1.LabelReservationID], ids)
	}
	return nil
}

// requirements returns those of the pool that the labels of the claim do not satisfy.
func requirements(labels requirement.Labels, claim *karpv1.NodeClaim, pool *karpv1.NodePool) []Field {
	var out []Field
	for i, q := range pool.Spec.Template.Spec.Requirements {
		want, err := labels.FromAPI([]karpv1.Requirement{q})
		if err != nil || labels.FromNode(claim.Labels).Compatible(want, nil) {
			continue
		}
		text := q.Key
		if all := want.All(); len(all) > 0 {
			text = wording.Requirement(all[0])
		}
		out = append(out, Field{
			Object: "NodePool/" + pool.Name, Field: fmt.Sprintf("spec.template.spec.requirements[%d]", i),
			Old: q.Key + "=" + cmp.Or(claim.Labels[q.Key], "none"), New: text,
		})
	}
	return out
}

// template are the fields of the pool's template that the claim keeps in its spec, labels and annotations.
func template(labels requirement.Labels, claim *karpv1.NodeClaim, pool *karpv1.NodePool) []Field {
	t := &pool.Spec.Template
	var out []Field
	differ := func(field, old, now string) {
		if old != now {
			out = append(out, Field{Object: "NodePool/" + pool.Name, Field: "spec.template." + field, Old: old, New: now})
		}
	}
	differ("spec.taints", taints(claim.Spec.Taints), taints(t.Spec.Taints))
	differ("spec.startupTaints", taints(claim.Spec.StartupTaints), taints(t.Spec.StartupTaints))
	differ("spec.nodeClassRef.name", claim.Spec.NodeClassRef.Name, t.Spec.NodeClassRef.Name)
	differ("spec.terminationGracePeriod", duration(claim.Spec.TerminationGracePeriod), duration(t.Spec.TerminationGracePeriod))
	differ("spec.expireAfter", never(claim.Spec.ExpireAfter), never(t.Spec.ExpireAfter))
	for _, key := range slices.Sorted(maps.Keys(t.Labels)) {
		differ("metadata.labels["+key+"]", claim.Labels[key], t.Labels[key])
	}
	for _, key := range slices.Sorted(maps.Keys(claim.Labels)) {
		if _, kept := t.Labels[key]; !kept && !givenOtherwise(labels, pool, key) {
			differ("metadata.labels["+key+"]", claim.Labels[key], "")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.Annotations)) {
		differ("metadata.annotations["+key+"]", claim.Annotations[key], t.Annotations[key])
	}
	if len(out) == 0 {
		const key = karpv1.AnnotationNodePoolHash
		differ("(a field that NodeClaims do not keep; hash)", claim.Annotations[key], pool.Annotations[key])
	}
	return out
}

// givenOtherwise reports whether claims get the label from elsewhere than the template's labels.
func givenOtherwise(labels requirement.Labels, pool *karpv1.NodePool, key string) bool {
	required := func(q karpv1.Requirement) bool { return q.Key == key }
	if labels.WellKnown[key] || slices.ContainsFunc(pool.Spec.Template.Spec.Requirements, required) {
		return true
	}
	domain, _, _ := strings.Cut(key, "/")
	return slices.ContainsFunc([]string{"karpenter.sh", "karpenter.k8s.aws", "kubernetes.io", "k8s.io", "dovetail.sh"}, func(d string) bool {
		return domain == d || strings.HasSuffix(domain, "."+d)
	})
}

func taints(list []corev1.Taint) string {
	parts := make([]string, 0, len(list))
	for i := range list {
		parts = append(parts, list[i].ToString())
	}
	return strings.Join(parts, ", ")
}

func duration(d *metav1.Duration) string {
	if d == nil {
		return ""
	}
	return report.Duration(d.Duration)
}

func never(d karpv1.NillableDuration) string {
	if d.Duration == nil {
		return "Never"
	}
	return report.Duration(*d.Duration)
}
