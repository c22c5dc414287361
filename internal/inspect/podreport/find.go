package podreport

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/spelling"
)

// maxNamed limits how many other pods an error names: as many as fit on a line or two.
const maxNamed = 5

// find returns the pod with the name. Otherwise, its error names the pods that were probably meant.
func find(pods []*corev1.Pod, name types.NamespacedName) (*corev1.Pod, error) {
	var elsewhere, beginning []string
	namespaces := map[string]bool{}
	var here []string
	for _, pod := range pods {
		namespaces[pod.Namespace] = true
		switch {
		case pod.Namespace == name.Namespace && pod.Name == name.Name:
			return pod, nil
		case pod.Name == name.Name:
			elsewhere = append(elsewhere, key(pod))
		case pod.Namespace == name.Namespace:
			here = append(here, pod.Name)
			if strings.HasPrefix(pod.Name, name.Name) {
				beginning = append(beginning, key(pod))
			}
		}
	}
	hint := ""
	switch near := nearest(name.Name, here); {
	case len(elsewhere) > 0:
		hint = "; there is " + some(elsewhere)
	case len(beginning) > 0:
		hint = "; there is " + some(beginning)
	case near != "":
		hint = "; did you mean " + name.Namespace + "/" + near + "?"
	case len(pods) == 0:
		hint = "; there are no pods at all"
	case !namespaces[name.Namespace]:
		hint = fmt.Sprintf("; namespace %s has no pods", name.Namespace)
	default:
		hint = "; it may have been deleted: its workload then has pods with other names"
	}
	return nil, &NotFoundError{fmt.Sprintf("pod %s does not exist%s", name, hint)}
}

// NotFoundError is returned for a pod that the cluster does not have. It names the pods that were probably meant.
type NotFoundError struct{ message string }

// Error is for people.
func (e *NotFoundError) Error() string { return e.message }

// key is the pod as NAMESPACE/NAME.
func key(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// some lists a few names.
func some(names []string) string {
	slices.Sort(names)
	if more := len(names) - maxNamed; more > 0 {
		return strings.Join(names[:maxNamed], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// nearest is the known word that a word was probably meant to be, with at most a third of its letters wrong.
func nearest(word string, known []string) string {
	return spelling.Nearest(word, known, max(1, len(word)/3))
}

// age is a duration for people: of the largest unit, and the next one while the first is small.
func age(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
