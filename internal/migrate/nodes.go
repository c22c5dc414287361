package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/inspect/drifted"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

func nodeChecks() []Check {
	return []Check{
		{
			ID: "selectors", Title: "an alias or selector of an EC2NodeClass finds nothing any more", needs: []doctor.Fact{doctor.NodeClasses},
			run: checkSelections,
		},
		{
			ID: "drift", Title: "nodes that would be replaced", needs: []doctor.Fact{doctor.NodeClaims, doctor.NodePools},
			run: checkDrift,
		},
		{ID: "doctor", Title: "what dovetail doctor finds beside this", run: checkDoctor},
	}
}

// as decodes an object into its Go type.
func as(o *unstructured.Unstructured, into any) bool {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into) == nil
}

// terms are the fields that select what a condition is about.
var terms = map[string]string{
	awsv1.ConditionAMIsReady: "spec.amiSelectorTerms", awsv1.ConditionSubnetsReady: "spec.subnetSelectorTerms",
	awsv1.ConditionSecurityGroupsReady:       "spec.securityGroupSelectorTerms",
	awsv1.ConditionCapacityReservationsReady: "spec.capacityReservationSelectorTerms",
	awsv1.ConditionPlacementGroupReady:       "spec.placementGroupSelector",
}

// checkSelections evaluates what the selectors select now; without access to AWS, what Karpenter has reported.
func checkSelections(f *Facts) (out []Result, _ string) {
	for i := range f.Cluster.NodeClasses {
		class := &f.Cluster.NodeClasses[i]
		conditions := f.Selections[class.Name].Conditions
		if conditions == nil {
			for _, c := range class.Status.Conditions {
				conditions = append(conditions, cloudprovider.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
			}
		}
		for _, c := range conditions {
			field := terms[c.Type]
			if field == "" || c.Status != metav1.ConditionFalse {
				continue
			}
			if c.Type == awsv1.ConditionAMIsReady {
				field = cmp.Or(aliasField(class), field)
			}
			out = append(out, Result{
				Status: Obstacle, Object: "EC2NodeClass " + class.Name, Field: field, Seen: cmp.Or(c.Message, c.Reason),
				Remedy: "choose what exists: kubectl edit ec2nodeclass " + class.Name,
			})
		}
	}
	if why := f.missing([]doctor.Fact{Selected}); why != "" {
		out = append(out, Result{Status: NotChecked, Seen: why})
	}
	return out, fmt.Sprintf("EC2NodeClasses: %d, whose selectors find images, subnets and security groups", len(f.Cluster.NodeClasses))
}

// aliasField is the path of the first alias of a class; empty if it has none.
func aliasField(class *awsv1.EC2NodeClass) string {
	for i, term := range class.Spec.AMISelectorTerms {
		if term.Alias != "" {
			return fmt.Sprintf("spec.amiSelectorTerms[%d].alias", i)
		}
	}
	return ""
}

// difference states why nodes of a pool would be replaced.
type difference struct{ pool, reason, object, field string }

// replaced are the nodes of a difference.
type replaced struct {
	claims []string
	// marked counts those that Karpenter has marked as drifted, too.
	marked   int
	old, new string
}

// checkDrift groups the claims that Dovetail would mark as drifted.
func checkDrift(f *Facts) ([]Result, string) {
	pools := map[string]*karpv1.NodePool{}
	for i := range f.Cluster.NodePools {
		pools[f.Cluster.NodePools[i].Name] = &f.Cluster.NodePools[i]
	}
	differences, without, compared, hashes := map[difference]*replaced{}, map[string][]string{}, 0, 0
	for i := range f.Cluster.NodeClaims {
		claim := &f.Cluster.NodeClaims[i]
		pool := pools[claim.Labels[karpv1.LabelNodePool]]
		if claim.DeletionTimestamp != nil || !condition.IsTrue(claim, karpv1.ConditionLaunched) ||
			!awsv1.IsEC2NodeClass(claim.Spec.NodeClassRef) {
			continue
		}
		if why := f.incomparable(claim, pool); why != "" {
			without[why] = append(without[why], claim.Name)
			continue
		}
		compared++
		if claim.Annotations[karpv1.AnnotationNodePoolHashVersion] != karpv1.NodePoolHashVersion {
			hashes++
		}
		f.compare(differences, claim, pool)
	}
	out := append(results(differences), f.leaving()...)
	for _, why := range slices.Sorted(maps.Keys(without)) {
		out = append(out, Result{
			Status: Warning, Object: "NodeClaim " + without[why][0], Seen: fmt.Sprintf("not compared: %s (NodeClaim %s)", why, few(without[why])),
			Remedy: "restore what it refers to, or delete the NodeClaims: their nodes are not replaced by themselves",
		})
	}
	// Without what a class selects now, its instances were compared with what Karpenter has selected.
	if why := f.missing([]doctor.Fact{Drift, Selected}); why != "" {
		out = append(out, Result{Status: NotChecked, Seen: why})
	}
	if len(out) == 0 {
		return nil, fmt.Sprintf("nodes: %d, and each matches its NodePool and EC2NodeClass; "+
			"with hashes of Karpenter, which are never compared: %d", compared, hashes)
	}
	return out, ""
}

// incomparable returns why a claim cannot be compared; empty if it can be.
func (f *Facts) incomparable(claim *karpv1.NodeClaim, pool *karpv1.NodePool) string {
	class := claim.Spec.NodeClassRef.Name
	exists := func(c awsv1.EC2NodeClass) bool { return c.Name == class }
	switch name := claim.Labels[karpv1.LabelNodePool]; {
	case name == "":
		return "it has no NodePool"
	case pool == nil:
		return fmt.Sprintf("NodePool %s does not exist", name)
	case f.missing([]doctor.Fact{doctor.NodeClasses}) == "" && !slices.ContainsFunc(f.Cluster.NodeClasses, exists):
		return fmt.Sprintf("EC2NodeClass %s does not exist", class)
	}
	return ""
}

// leaving are the NodePools and EC2NodeClasses that are being deleted: their nodes go with them.
func (f *Facts) leaving() (out []Result) {
	nodes := map[string]int{}
	for i := range f.Cluster.NodeClaims {
		c := &f.Cluster.NodeClaims[i]
		nodes["NodePool "+c.Labels[karpv1.LabelNodePool]]++
		nodes["EC2NodeClass "+c.Spec.NodeClassRef.Name]++
	}
	add := func(object string, deleted *metav1.Time) {
		if deleted == nil {
			return
		}
		out = append(out, Result{
			Status: Warning, Object: object, Field: "metadata.deletionTimestamp",
			Seen:   fmt.Sprintf("it is being deleted, and with it %s: Karpenter has not finished", report.Plural(nodes[object], "node")),
			Remedy: "wait until it is gone, or find out what keeps it: Dovetail goes on with the deletion",
		})
	}
	for i := range f.Cluster.NodePools {
		add("NodePool "+f.Cluster.NodePools[i].Name, f.Cluster.NodePools[i].DeletionTimestamp)
	}
	for i := range f.Cluster.NodeClasses {
		add("EC2NodeClass "+f.Cluster.NodeClasses[i].Name, f.Cluster.NodeClasses[i].DeletionTimestamp)
	}
	return out
}

// few are the first names of a list, and how many more there are.
func few(names []string) string {
	const shown = 3
	slices.Sort(names)
	text := strings.Join(names[:min(shown, len(names))], ", ")
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// compare adds a claim to the difference by which it would be replaced.
func (f *Facts) compare(differences map[difference]*replaced, claim *karpv1.NodeClaim, pool *karpv1.NodePool) {
	labels := requirement.Labels{Vocabulary: awsv1.Vocabulary()}
	reason, err := disrupt.DriftReason(claim, pool, labels)
	if err != nil {
		return // requirements that cannot be read, which another check reports
	}
	if reason = cmp.Or(reason, f.Drift[claim.Name]); reason == "" {
		return
	}
	comparison := drifted.Comparison{
		Claim: claim, Pool: pool, Class: f.Selections[pool.Spec.Template.Spec.NodeClassRef.Name].Class, Labels: labels,
	}
	field := drifted.Field{Object: "NodePool/" + pool.Name}
	if fields := comparison.Fields(reason); len(fields) > 0 {
		field = fields[0]
	}
	key := difference{pool.Name, reason, strings.Replace(field.Object, "/", " ", 1), field.Field}
	if differences[key] == nil {
		differences[key] = &replaced{old: field.Old, new: field.New}
	}
	group := differences[key]
	group.claims = append(group.claims, claim.Name)
	if condition.IsTrue(claim, karpv1.ConditionDrifted) {
		group.marked++
	}
}

func results(differences map[difference]*replaced) (out []Result) {
	for d, group := range differences {
		result := Result{
			Status: Obstacle, Object: d.object, Field: d.field,
			Seen: fmt.Sprintf("%s of NodePool %s would be replaced for %s (NodeClaim %s): %s -> %s", report.Plural(len(group.claims), "node"),
				d.pool, d.reason, few(group.claims), cmp.Or(group.old, "none"), cmp.Or(group.new, "none")),
			Remedy: "change the field to what the nodes have, or have Karpenter replace the nodes before the takeover",
		}
		if group.marked == len(group.claims) {
			result.Status = Warning
			result.Seen += "; Karpenter has marked them, too"
			result.Remedy = "let Karpenter replace them first, or leave it to Dovetail: budgets apply"
		}
		out = append(out, result)
	}
	return out
}

// checkDoctor counts what the doctor finds, in checks that none of these repeats.
func checkDoctor(f *Facts) (out []Result, _ string) {
	repeated := []string{
		"identity-cluster", "identity-foreign-instance", "identity-unknown-instance", "operations-other-controller",
		"operations-missing-permission", "nodes-webhook", "nodes-without-instance", "network-selectors",
	}
	found := map[string]int{}
	report := doctor.Run(f.Cluster)
	for _, finding := range report.At(doctor.Warning).Findings {
		if !slices.Contains(repeated, finding.Check) {
			found[finding.Check]++
		}
	}
	if len(found) > 0 {
		command := "dovetail doctor"
		if f.Cluster.ClusterName != "" {
			command += " --cluster-name " + word(f.Cluster.ClusterName)
		}
		out = append(out, Result{
			Status: Warning, Object: "cluster",
			Seen:   "with Karpenter, too, something fails or may fail: " + strings.Join(slices.Sorted(maps.Keys(found)), ", "),
			Remedy: "see " + command,
		})
	}
	why := map[string]bool{}
	for _, missed := range report.NotChecked {
		if !slices.Contains(repeated, missed.Check) {
			why[missed.Why] = true
		}
	}
	if reasons := slices.Sorted(maps.Keys(why)); len(reasons) > 0 {
		const shown = 3
		text := strings.Join(reasons[:min(shown, len(reasons))], "; ")
		if more := len(reasons) - shown; more > 0 {
			text += fmt.Sprintf("; and %d more reasons", more)
		}
		out = append(out, Result{Status: NotChecked, Seen: text})
	}
	return out, "dovetail doctor finds nothing else that fails or may fail"
}
