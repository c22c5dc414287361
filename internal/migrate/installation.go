package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
)

// Installation is a controller that runs in the cluster.
type Installation struct {
	Namespace string `json:"namespace"`
	// Name is that of the Deployment.
	Name  string `json:"name"`
	Image string `json:"image"`
	// Version is like 1.15.1; empty if neither the image nor a label has it.
	Version        string `json:"version"`
	Replicas       int32  `json:"replicas"`
	ServiceAccount string `json:"serviceAccount"`
	// Release is the Helm release; empty if Helm has not installed it.
	Release string `json:"release,omitempty"`
	// GitOps is the tool that restores the Deployment when somebody changes it: Argo CD or Flux; empty if none does.
	GitOps string `json:"gitops,omitempty"`

	release    HelmRelease
	deployment *appsv1.Deployment
}

// HelmRelease is the one that has it; empty if Helm has not installed it.
func (i *Installation) HelmRelease() HelmRelease { return i.release }

// Object returns how results name it.
func (i *Installation) Object() string { return "Deployment " + i.Namespace + "/" + i.Name }

// software describes what a Deployment runs.
type software int

const (
	other software = iota
	karpenter
	dovetail
)

// The annotations by which Helm owns an object.
const releaseName, releaseNamespace = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"

// HelmRelease is one of Helm; without a name, none.
type HelmRelease struct{ Namespace, Name string }

// ReleaseOf is the release that owns an object. Anyone who may write the annotations can write any text, which must not become a part of a
// command: a text that Helm cannot have written is none.
func ReleaseOf(o metav1.Object) HelmRelease {
	r := HelmRelease{o.GetAnnotations()[releaseNamespace], o.GetAnnotations()[releaseName]}
	if !isReleaseName(r.Name) || !isReleaseName(r.Namespace) {
		return HelmRelease{}
	}
	return r
}

// isReleaseName reports whether Helm can have written a text as the name of a release or namespace.
func isReleaseName(text string) bool { return len(validation.IsDNS1123Subdomain(text)) == 0 }

const labelName, labelVersion = "app.kubernetes.io/name", "app.kubernetes.io/version"

// runs returns what pods of a template run, by its images, and by their name label where the image was renamed.
func runs(pod *corev1.PodSpec, labels ...map[string]string) software {
	for i := range pod.Containers {
		if is := softwareOf(pod.Containers[i].Image); is != other {
			return is
		}
	}
	if slices.ContainsFunc(labels, func(l map[string]string) bool { return l[labelName] == "karpenter" }) {
		return karpenter
	}
	return other
}

// softwareOf returns what an image has.
func softwareOf(image string) software {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return other
	}
	repository := reference.Path(named)
	switch {
	case slices.Contains(strings.Split(repository, "/"), "dovetail"):
		return dovetail
	case strings.HasSuffix("/"+repository, "/karpenter/controller"),
		slices.Contains([]string{"karpenter", "karpenter-controller"}, path.Base(repository)):
		return karpenter
	}
	return other
}

// installations are the Deployments that run a software: see order.
func (f *Facts) installations(of software) (out []*Installation) {
	for i := range f.Deployments {
		d := &f.Deployments[i]
		is := runs(&d.Spec.Template.Spec, d.Labels, d.Spec.Template.Labels)
		if d.Namespace+"/"+d.Name == f.Named {
			is = karpenter
		}
		if is == of {
			out = append(out, installation(d))
		}
	}
	slices.SortStableFunc(out, func(a, b *Installation) int {
		return cmp.Or(f.order(a)-f.order(b), cmp.Compare(b.Replicas, a.Replicas), cmp.Compare(a.Object(), b.Object()))
	})
	return out
}

// order sorts the Deployment that a person has named before others, and those that have a cluster's name before those that do not: these
// cannot start.
func (f *Facts) order(i *Installation) int {
	switch {
	case i.Namespace+"/"+i.Name == f.Named:
		return 0
	case len(i.container().EnvFrom) > 0 || hasClusterName(i.container()):
		return 1
	}
	return 2
}

// Karpenter is the installation to take over from; nil if there is none. One that a person has named is never another one.
func (f *Facts) Karpenter() *Installation {
	found := f.installations(karpenter)
	if len(found) == 0 || f.Named != "" && found[0].Namespace+"/"+found[0].Name != f.Named {
		return nil
	}
	return found[0]
}

// noKarpenter returns why there is no installation to take over from.
func (f *Facts) noKarpenter() string {
	if f.Named != "" {
		return fmt.Sprintf("there is no Deployment %q", f.Named)
	}
	return "no Deployment runs Karpenter"
}

func installation(d *appsv1.Deployment) *Installation {
	i := &Installation{
		Namespace: d.Namespace, Name: d.Name, Replicas: 1, ServiceAccount: cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default"),
		release: ReleaseOf(d), deployment: d,
	}
	i.Release = i.release.Name
	if d.Spec.Replicas != nil {
		i.Replicas = *d.Spec.Replicas
	}
	c := i.container()
	i.Image = c.Image
	if named, err := reference.ParseNormalizedNamed(c.Image); err == nil {
		if tagged, ok := named.(reference.Tagged); ok {
			i.Version = versionIn(tagged.Tag())
		}
	}
	i.Version = cmp.Or(i.Version, versionIn(d.Labels[labelVersion]))
	for _, by := range []struct{ tool, prefix string }{
		{"Argo CD", "argocd.argoproj.io/"}, {"Flux", "kustomize.toolkit.fluxcd.io/"}, {"Flux", "helm.toolkit.fluxcd.io/"},
	} {
		for _, key := range slices.Concat(slices.Collect(maps.Keys(d.Labels)), slices.Collect(maps.Keys(d.Annotations))) {
			if strings.HasPrefix(key, by.prefix) {
				i.GitOps = by.tool
			}
		}
	}
	return i
}

// container is the one of the controller: that of its image, else the one that has a cluster's name, else that of its name in Karpenter's
// chart, else the first.
func (i *Installation) container() *corev1.Container {
	list := i.deployment.Spec.Template.Spec.Containers
	for _, is := range []func(*corev1.Container) bool{
		func(c *corev1.Container) bool { return softwareOf(c.Image) != other }, hasClusterName,
		func(c *corev1.Container) bool { return c.Name == "controller" }, func(*corev1.Container) bool { return true },
	} {
		for n := range list {
			if is(&list[n]) {
				return &list[n]
			}
		}
	}
	return &corev1.Container{}
}

// hasClusterName reports whether a container is started with a cluster's name.
func hasClusterName(c *corev1.Container) bool {
	return slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == "CLUSTER_NAME" }) ||
		slices.ContainsFunc(slices.Concat(c.Command, c.Args), func(arg string) bool {
			return strings.HasPrefix(strings.TrimLeft(arg, "-"), "cluster-name")
		})
}

var versionPattern = regexp.MustCompile(`\d+\.\d+\.\d+`)

func versionIn(text string) string { return versionPattern.FindString(text) }

// newest is the minor version of Karpenter 1 of which each name and default is known; see docs/compatibility.md.
const newest = 15

func installationChecks() []Check {
	return []Check{
		{ID: "version", Title: "the version of Karpenter is not supported, or not known", needs: []doctor.Fact{Deployments}, run: checkVersion},
		{
			ID: "controllers", Title: "a second controller does the same work", needs: []doctor.Fact{Deployments, doctor.Pods},
			run: checkControllers,
		},
		{ID: "gitops", Title: "a tool restores Karpenter when it is scaled down", needs: []doctor.Fact{Deployments}, run: checkGitOps},
	}
}

func checkVersion(f *Facts) ([]Result, string) {
	k := f.Karpenter()
	if k == nil {
		return []Result{{
			Status: Obstacle, Object: "Deployment", Seen: f.noKarpenter(),
			Remedy: "name it: --deployment NAMESPACE/NAME",
		}}, ""
	}
	result := Result{Status: Warning, Object: k.Object(), Field: "spec.template.spec.containers[].image"}
	major, rest, _ := strings.Cut(k.Version, ".")
	minor, err := strconv.Atoi(strings.SplitN(rest, ".", 2)[0])
	switch {
	case k.Version == "" || err != nil:
		result.Seen, result.Remedy = fmt.Sprintf("image %s has no version in its tag", k.Image),
			"check that it is 1.0 or newer: older versions have another API"
	case major == "0":
		result.Status, result.Seen = Obstacle, "Karpenter "+k.Version+" has an older API"
		result.Remedy = "upgrade Karpenter to 1.0 or newer first, by its own upgrade guide"
	case major == "1" && minor <= newest:
		return nil, fmt.Sprintf("Karpenter %s is %s, image %s, %d replicas", k.Version, k.Object(), k.Image, k.Replicas)
	default:
		result.Seen = fmt.Sprintf("Karpenter %s is newer than 1.%d, the newest version whose API is known", k.Version, newest)
		result.Remedy = "check its release notes for fields, settings and feature gates that you use"
	}
	return []Result{result}, ""
}

func checkGitOps(f *Facts) ([]Result, string) {
	k := f.Karpenter()
	if k == nil || k.GitOps == "" {
		return nil, "no tool owns the Deployment but Helm and you"
	}
	return []Result{{
		Status: Warning, Object: k.Object(), Field: "metadata.labels", Seen: k.GitOps + " owns the Deployment, and restores its replicas",
		Remedy: "make each change of the plan in the repository that " + k.GitOps + " reads, or suspend it meanwhile",
	}}, ""
}
