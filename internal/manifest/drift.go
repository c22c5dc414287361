package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// Drift states why a node differs from what its NodePool and node class would launch now.
type Drift struct {
	Reason string
	// Fields are the changed fields, if they are the reason, each after the name of its object.
	Fields []string
}

// nodeClassDrifted is the reason of the condition Drifted where a field of the node class has changed.
const nodeClassDrifted = "NodeClassDrift"

// inherit copies what only the cluster knows from an object of the snapshot to the one that overrides it.
func inherit(into, before client.Object) {
	if before.GetUID() != "" {
		into.SetUID(before.GetUID())
	}
	if into.GetCreationTimestamp().Time.IsZero() {
		into.SetCreationTimestamp(before.GetCreationTimestamp())
	}
	switch t := into.(type) {
	case *karpv1.NodePool:
		if old, ok := before.(*karpv1.NodePool); ok && apiequality.Semantic.DeepEqual(t.Status, karpv1.NodePoolStatus{}) {
			t.Status = *old.Status.DeepCopy()
		}
	case *awsv1.EC2NodeClass:
		if old, ok := before.(*awsv1.EC2NodeClass); ok && apiequality.Semantic.DeepEqual(t.Status, awsv1.EC2NodeClassStatus{}) {
			t.Status = *old.Status.DeepCopy()
		}
	}
}

// drift marks the NodeClaims of a snapshot that drift by an overriding NodePool or node class.
func (r *reader) drift() error {
	labels := requirement.Labels{Vocabulary: awsv1.Vocabulary()}
	r.world.Drifted = map[string]Drift{}
	pools, classes := map[*karpv1.NodePool]poolEdit{}, map[identity]Drift{}
	for i, claim := range r.world.NodeClaims {
		id := identity{kind: "NodePool", name: claim.Labels[karpv1.LabelNodePool]}
		pool, ok := r.current(id).(*karpv1.NodePool)
		if !ok || !condition.IsTrue(claim, karpv1.ConditionLaunched) {
			continue
		}
		class := identity{kind: "EC2NodeClass", name: pool.Spec.Template.Spec.NodeClassRef.Name}
		if r.overridden[id] == nil && r.overridden[class] == nil {
			continue
		}
		edit, known := pools[pool]
		if !known {
			var err error
			if edit, err = r.poolEdit(pool); err != nil {
				return err
			}
			pools[pool] = edit
		}
		found, err := edit.drift(claim, labels)
		if err != nil {
			return err
		}
		if found.Reason == "" && awsv1.IsEC2NodeClass(pool.Spec.Template.Spec.NodeClassRef) {
			if found, known = classes[class]; !known {
				if found, err = r.classDrift(class); err != nil {
					return err
				}
				classes[class] = found
			}
		}
		marked := claim.DeepCopy()
		r.world.NodeClaims[i] = marked
		before, _ := condition.Get(claim, karpv1.ConditionDrifted)
		ours := slices.Contains([]string{disrupt.NodePoolDrifted, disrupt.RequirementsDrifted}, before.Reason)
		switch {
		case found.Reason != "":
			condition.SetTrueWithReason(marked, karpv1.ConditionDrifted, condition.Because(found.Reason, found.Reason), r.world.Now)
			r.world.Drifted[claim.Name] = found
		case before.Status == metav1.ConditionTrue && !ours:
			r.world.Drifted[claim.Name] = Drift{Reason: before.Reason} // its cause is in no file
		default:
			condition.Clear(marked, karpv1.ConditionDrifted, r.world.Now)
		}
	}
	r.noteSelectors()
	return nil
}

// current returns the last version of an object in the inputs; nil if there is none.
func (r *reader) current(id identity) client.Object {
	if o := r.objects[id]; o != nil {
		return o.Object
	}
	return nil
}

// poolEdit is a pool with its hash, and what differs from the snapshot's pool. Requirements are excluded: they are
// compared with each node.
type poolEdit struct {
	*karpv1.NodePool
	changed bool
	fields  []string
}

func (r *reader) poolEdit(pool *karpv1.NodePool) (poolEdit, error) {
	hash, err := pool.Hash()
	if err != nil {
		return poolEdit{}, fmt.Errorf("NodePool %s: %w", pool.Name, err)
	}
	out := poolEdit{NodePool: pool.DeepCopy()}
	out.Annotations = with(
		with(pool.Annotations, karpv1.AnnotationNodePoolHash, hash),
		karpv1.AnnotationNodePoolHashVersion,
		karpv1.NodePoolHashVersion,
	)
	before := r.overridden[identity{kind: "NodePool", name: pool.Name}]
	if before == nil {
		return out, nil
	}
	old, ok := before.Object.(*karpv1.NodePool)
	if !ok {
		return out, nil
	}
	oldHash, err := old.Hash()
	if err != nil {
		return poolEdit{}, fmt.Errorf("NodePool %s: %w", pool.Name, err)
	}
	out.changed = oldHash != hash
	out.fields = slices.DeleteFunc(differences("spec.template", old.Spec.Template, pool.Spec.Template), func(f string) bool {
		return strings.HasPrefix(f, "spec.template.spec.requirements")
	})
	return out, nil
}

// drift compares a claim with the pool. The hash on the claim is Dovetail's or Karpenter's; Karpenter's cannot be
// compared, so the old and new pools are compared instead.
func (p poolEdit) drift(claim *karpv1.NodeClaim, labels requirement.Labels) (Drift, error) {
	reason, err := disrupt.DriftReason(claim, p.NodePool, labels)
	if err != nil {
		return Drift{}, err
	}
	if p.changed && claim.Annotations[karpv1.AnnotationNodePoolHashVersion] != karpv1.NodePoolHashVersion {
		reason = disrupt.NodePoolDrifted
	}
	fields := p.fields
	if reason == disrupt.RequirementsDrifted {
		fields = nil
		for _, q := range p.Spec.Template.Spec.Requirements {
			want, err := labels.FromAPI([]karpv1.Requirement{q})
			if err == nil && !labels.FromNode(claim.Labels).Compatible(want, nil) {
				fields = append(fields, "spec.template.spec.requirements["+q.Key+"]")
			}
		}
	}
	return newDrift(reason, "NodePool "+p.Name, fields), nil
}

func newDrift(reason, object string, fields []string) Drift {
	if reason == "" {
		return Drift{}
	}
	out := Drift{Reason: reason}
	for _, f := range fields {
		out.Fields = append(out.Fields, object+" "+f)
	}
	return out
}

// selected are the fields of a node class that select resources in the account; the result is in no file.
var selected = []string{
	"spec.amiSelectorTerms", "spec.subnetSelectorTerms", "spec.securityGroupSelectorTerms", "spec.capacityReservationSelectorTerms",
}

// classDrift compares a node class with that of the snapshot.
func (r *reader) classDrift(id identity) (Drift, error) {
	old, class := r.classes(id)
	if old == nil || class == nil {
		return Drift{}, nil
	}
	hashes := map[string]bool{}
	for _, c := range []*awsv1.EC2NodeClass{old, class} {
		hash, err := c.Hash(awsv1.HashInput{AMIFamily: family(c)})
		if err != nil {
			return Drift{}, fmt.Errorf("EC2NodeClass %s: %w", c.Name, err)
		}
		hashes[hash] = true
	}
	if len(hashes) == 1 {
		return Drift{}, nil
	}
	fields := slices.DeleteFunc(differences("spec", old.Spec, class.Spec), bySelector)
	return newDrift(nodeClassDrifted, "EC2NodeClass "+id.name, fields), nil
}

func bySelector(path string) bool {
	return slices.ContainsFunc(selected, func(s string) bool { return strings.HasPrefix(path, s) })
}

// classes returns a node class of the snapshot and the one that overrides it, both without user data, which no snapshot
// has. They are nil unless both exist.
func (r *reader) classes(id identity) (old, class *awsv1.EC2NodeClass) {
	if r.overridden[id] == nil {
		return nil, nil
	}
	old, ok := r.overridden[id].Object.(*awsv1.EC2NodeClass)
	class, too := r.current(id).(*awsv1.EC2NodeClass)
	if !ok || !too {
		return nil, nil
	}
	old, class = old.DeepCopy(), class.DeepCopy()
	old.Spec.UserData, class.Spec.UserData = "", ""
	return old, class
}

// family returns the family of a class's images: from the spec, or from the alias.
func family(c *awsv1.EC2NodeClass) string {
	for _, term := range c.Spec.AMISelectorTerms {
		if name, _, found := strings.Cut(term.Alias, "@"); found {
			return strings.ToLower(cmp.Or(c.Spec.AMIFamily, name))
		}
	}
	return strings.ToLower(c.Spec.AMIFamily)
}

// noteSelectors notes which changes of overriding node classes cannot be evaluated from files.
func (r *reader) noteSelectors() {
	for _, o := range r.order {
		id := o.identity()
		old, class := r.classes(id)
		if old == nil {
			continue
		}
		for _, field := range differences("spec", old.Spec, class.Spec) {
			if bySelector(field) {
				r.note("EC2NodeClass %s: %s has changed; its result is unknown here: the plan uses what the snapshot's class selects",
					id.name, field)
			}
		}
		if now, ok := r.current(id).(*awsv1.EC2NodeClass); ok && now.Spec.UserData != "" {
			r.note("EC2NodeClass %s: a snapshot has no user data: nodes drift if spec.userData has changed, which is not known here", id.name)
		}
	}
}
