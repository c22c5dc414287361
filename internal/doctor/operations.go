package doctor

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func operationChecks() []Check {
	return []Check{{
		ID: "operations-other-controller", Area: "operations", Severity: Warning, Title: "another controller does part of the same work",
		Why: "both launch nodes for the same pods, and drain each other's nodes", needs: []Fact{Pods}, run: otherControllers,
	}, {
		ID: "operations-missing-permission", Area: "operations", Severity: Warning,
		Title: "the controller's role lacks permissions for EC2 calls",
		Why:   "what needs these calls fails, or uses stale data", needs: []Fact{Permissions}, run: missingPermissions,
	}}
}

// rivals are controllers that launch or terminate nodes, by the last part of their image's name, with what they do
// here.
var rivals = map[string]string{
	"cluster-autoscaler": "it launches nodes for the same pending pods, and terminates nodes of its groups to which their pods were " +
		"moved",
	"aws-node-termination-handler": "it drains nodes on the same notices of EC2, without replacements and without regard to the order in " +
		"which volumes detach",
}

// otherControllers reports each controller once, however many replicas it has.
func otherControllers(f *Facts) (out []Finding) {
	seen, names := map[string]bool{}, map[string]string{} // of images: 100,000 pods have few
	for _, p := range f.Pods {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, c := range p.Spec.Containers {
			name, known := names[c.Image]
			if !known {
				name = imageName(c.Image)
				names[c.Image] = name
			}
			does, rival := rivals[name]
			if !rival {
				continue
			}
			object, stop := Runner(p)
			if seen[object] {
				continue
			}
			seen[object] = true
			found := Finding{
				Object: object, Seen: fmt.Sprintf("image %s: %s", c.Image, does), Remedy: "if Dovetail should manage its nodes", Command: stop,
			}
			if strings.Contains(stop, " delete ") { // what has no replicas
				found.deletes = ": " + stop
			} else {
				found.Remedy += ": " + stop
			}
			out = append(out, found)
		}
	}
	return out
}

// imageName returns the last part of an image's repository: registry:5000/a/NAME:tag@digest. It is empty for a reference that
// no container runtime accepts.
func imageName(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return ""
	}
	return path.Base(reference.Path(named))
}

// Runner returns the object that runs a pod, and the command that stops it.
func Runner(p *corev1.Pod) (object, stop string) {
	kind, name := "Pod", p.Name
	if at := slices.IndexFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller }); at >= 0 {
		kind, name = p.OwnerReferences[at].Kind, p.OwnerReferences[at].Name
	}
	// The name of a Deployment's ReplicaSet is the Deployment's and the hash in the pods' label.
	if deployment, ok := strings.CutSuffix(name, "-"+p.Labels["pod-template-hash"]); kind == "ReplicaSet" && ok {
		kind, name = "Deployment", deployment
	}
	object = kind + " " + p.Namespace + "/" + name
	if kind == "Deployment" || kind == "ReplicaSet" || kind == "StatefulSet" {
		return object, fmt.Sprintf("kubectl -n %s scale %s %s --replicas 0", p.Namespace, strings.ToLower(kind), name)
	}
	return object, fmt.Sprintf("kubectl -n %s delete %s %s", p.Namespace, strings.ToLower(kind), name)
}
