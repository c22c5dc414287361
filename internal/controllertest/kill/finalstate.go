package kill

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// digest describes the final state of a scenario, without what may differ between runs: times, versions, and the UIDs
// and names that the API server generates.
func digest(t *testing.T, w *World) []string {
	t.Helper()
	var out []string
	for _, list := range []client.ObjectList{
		&karpv1.NodePoolList{}, &awsv1.EC2NodeClassList{}, &karpv1.NodeClaimList{},
		&corev1.NodeList{}, &corev1.PodList{},
	} {
		if err := w.API.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			text, err := yaml.Marshal(withoutTimes(o.(client.Object)))
			out = append(out, fmt.Sprintf("%T\n%s", o, text))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range w.Cloud.All {
		out = append(out, fmt.Sprintf("instance %s", m.State))
	}
	slices.Sort(out)
	return out
}

func withoutTimes(o client.Object) client.Object {
	o.SetResourceVersion("")
	o.SetCreationTimestamp(metav1.Time{})
	if o.GetDeletionTimestamp() != nil {
		o.SetDeletionTimestamp(&metav1.Time{})
	}
	if o.GetGenerateName() != "" {
		o.SetName("")
		o.SetUID("")
	}
	if c, ok := o.(*karpv1.NodeClaim); ok {
		withoutCommandID(c)
		if _, ok := c.Annotations[karpv1.AnnotationTerminationTimestamp]; ok {
			c.Annotations[karpv1.AnnotationTerminationTimestamp] = "a time"
		}
	}
	if c, ok := o.(condition.Object); ok {
		conditions := c.GetConditions()
		for i := range conditions {
			conditions[i].LastTransitionTime = metav1.Time{}
		}
		slices.SortFunc(conditions, func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
	}
	return o
}

// withoutCommandID removes the ID of the disruption command, and the generated names of its replacements, from a claim.
func withoutCommandID(c *karpv1.NodeClaim) {
	if _, ok := c.Annotations[karpv1.AnnotationReplacementOf]; ok {
		c.Annotations[karpv1.AnnotationReplacementOf] = ""
	}
	if e, ok, err := c.DisruptionCommand(); ok && err == nil {
		c.Annotations[karpv1.AnnotationDisruptionCommand] = fmt.Sprintf("%s/%s %v, %d", e.Reason, e.Kind, e.Candidates, len(e.Replacements))
	}
	if cause, found := c.DeletionCause(); found { // which of several reasons is the first may differ
		c.Annotations[karpv1.AnnotationDeletionCause] = cause.Kind
	}
}
