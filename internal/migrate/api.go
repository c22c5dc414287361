package migrate

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/dovetail-k8s/dovetail/api/crds"
	"github.com/dovetail-k8s/dovetail/api/support"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

func apiChecks() []Check {
	return []Check{
		{
			ID: "crds", Title: "the API server stores or converts old versions of the API", needs: []doctor.Fact{Definitions},
			run: checkDefinitions,
		},
		{
			ID: "provider", Title: "NodePools launch from node classes of another provider",
			needs: []doctor.Fact{Definitions, doctor.NodePools, doctor.NodeClaims},
			run:   checkProvider,
		},
		{ID: "fields", Title: "fields that are not supported, or without effect", needs: []doctor.Fact{Objects}, run: checkFields},
		{
			ID: "webhooks", Title: "a webhook rejects writes, or will without Karpenter", needs: []doctor.Fact{Webhooks, Deployments},
			run: checkWebhooks,
		},
	}
}

// legacy are the definitions of kinds that Karpenter 1 does not have.
var legacy = []string{"provisioners.karpenter.sh", "machines.karpenter.sh", "awsnodetemplates.karpenter.k8s.aws"}

func checkDefinitions(f *Facts) (out []Result, _ string) {
	ours, err := crds.All()
	if err != nil {
		return []Result{{Status: NotChecked, Seen: err.Error()}}, ""
	}
	known := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, d := range ours {
		known[d.Name] = d
	}
	var names []string
	for i := range f.Definitions {
		d := &f.Definitions[i]
		if slices.Contains(legacy, d.Name) {
			out = append(out, f.leftover(d)...)
			continue
		}
		own := known[d.Name]
		if own == nil {
			continue
		}
		names = append(names, d.Name)
		if d.DeletionTimestamp != nil {
			out = append(out, Result{
				Status: Obstacle, Object: definitionObject(d), Field: "metadata.deletionTimestamp",
				Seen: "it is being deleted, and with it all its objects and their nodes",
				Remedy: "stop Karpenter before it terminates more nodes, and save the objects; this deletion cannot be taken back: " +
					"kubectl get " + d.Name + " -o yaml",
			})
		}
		out = append(out, versions(d, own)...)
		if c := d.Spec.Conversion; c != nil && c.Strategy == apiextensionsv1.WebhookConverter {
			out = append(out, Result{
				Status: Obstacle, Object: definitionObject(d), Field: "spec.conversion.strategy",
				Seen:   "Webhook: without Karpenter, no object of another version can be read or written",
				Remedy: fmt.Sprintf(`kubectl patch crd %s --type json -p '[{"op":"remove","path":"/spec/conversion"}]'`, d.Name),
			})
		}
	}
	return out, fmt.Sprintf("%d CustomResourceDefinitions serve and store the versions of this program", len(names))
}

func definitionObject(d *apiextensionsv1.CustomResourceDefinition) string {
	return "CustomResourceDefinition " + d.Name
}

// leftover is about a definition of a kind that Karpenter 1 does not have.
func (f *Facts) leftover(d *apiextensionsv1.CustomResourceDefinition) []Result {
	result := Result{
		Status: Warning, Object: definitionObject(d), Seen: "a kind that Karpenter 1 does not have; it has no objects",
		Remedy: "delete it: kubectl delete crd " + d.Name,
	}
	if n := f.ObjectCounts[d.Name]; n > 0 {
		result.Status, result.Seen = Obstacle, fmt.Sprintf("%d objects of a kind that Karpenter 1 does not have", n)
		result.Remedy = "write them as NodePools and EC2NodeClasses, replace their nodes, and delete them: kubectl get " + d.Name
	}
	return []Result{result}
}

// versions compares a definition with ours.
func versions(d, own *apiextensionsv1.CustomResourceDefinition) (out []Result) {
	served := map[string]bool{}
	for _, v := range d.Spec.Versions {
		served[v.Name] = v.Served
	}
	var ours []string
	for _, v := range own.Spec.Versions {
		ours = append(ours, v.Name)
	}
	for _, v := range ours {
		if !served[v] {
			out = append(out, Result{
				Status: Obstacle, Object: definitionObject(d), Field: "spec.versions", Seen: "version " + v + " is not served",
				Remedy: "upgrade Karpenter to 1.0 or newer first, with its CustomResourceDefinitions",
			})
		}
	}
	for _, v := range d.Status.StoredVersions {
		if slices.Contains(ours, v) {
			continue
		}
		rewrite := fmt.Sprintf("kubectl get %[1]s -o json | kubectl replace -f -; "+
			`kubectl patch crd %[1]s --subresource status --type merge -p '{"status":{"storedVersions":["%[2]s"]}}'`, d.Name, ours[0])
		out = append(out, Result{
			Status: Obstacle, Object: definitionObject(d), Field: "status.storedVersions",
			Seen:   fmt.Sprintf("objects are stored as %s, and the API server refuses definitions without that version", v),
			Remedy: "rewrite them while Karpenter runs, then drop the version: " + rewrite,
		})
	}
	return out
}

func checkProvider(f *Facts) (out []Result, _ string) {
	classes := slices.ContainsFunc(f.Definitions, func(d apiextensionsv1.CustomResourceDefinition) bool {
		return d.Spec.Group == awsv1.Group && d.Spec.Names.Kind == "EC2NodeClass"
	})
	if !classes {
		out = append(out, Result{
			Status: Obstacle, Object: "CustomResourceDefinition ec2nodeclasses." + awsv1.Group,
			Seen:   "does not exist: Karpenter runs with another provider than that of AWS",
			Remedy: "Dovetail launches EC2 instances only: keep Karpenter",
		})
	}
	refer := func(object, field string, ref karpv1.NodeClassReference) {
		if awsv1.IsEC2NodeClass(ref) {
			return
		}
		out = append(out, Result{
			Status: Obstacle, Object: object, Field: field, Seen: fmt.Sprintf("refers to %s %s of %s, a provider of its own",
				ref.Kind, ref.Name, ref.Group),
			Remedy: "Dovetail ignores it: refer to an EC2NodeClass, or keep a Karpenter with that provider for it",
		})
	}
	for i := range f.Cluster.NodePools {
		p := &f.Cluster.NodePools[i]
		refer("NodePool "+p.Name, "spec.template.spec.nodeClassRef", p.Spec.Template.Spec.NodeClassRef)
	}
	for i := range f.Cluster.NodeClaims {
		refer("NodeClaim "+f.Cluster.NodeClaims[i].Name, "spec.nodeClassRef", f.Cluster.NodeClaims[i].Spec.NodeClassRef)
	}
	return oncePerKind(out), fmt.Sprintf("NodePools: %d, and each refers to an EC2NodeClass", len(f.Cluster.NodePools))
}

// checkFields compares each object with our definitions: they drop fields that they do not have, and reject what they do not allow.
func checkFields(f *Facts) (out []Result, _ string) {
	conformer := manifest.NewConformer()
	for i := range f.Objects {
		o := &f.Objects[i]
		out = append(out, slices.Concat(conformance(conformer, o), f.compatibility(o), withoutEffect(o))...)
	}
	return oncePerKind(out), fmt.Sprintf("objects: %d, without a field that is unknown, invalid or ignored", len(f.Objects))
}

// conformance returns what our definitions drop of an object, or reject.
func conformance(conformer *manifest.Conformer, o *unstructured.Unstructured) (out []Result) {
	c, err := conformer.Check(o)
	if err != nil {
		return []Result{{
			Status: Obstacle, Object: objectOf(o), Field: "apiVersion", Seen: err.Error(),
			Remedy: "delete it, or write it in the version of this program's CustomResourceDefinitions",
		}}
	}
	for _, path := range c.Unknown {
		out = append(out, Result{
			Status: Obstacle, Object: objectOf(o), Field: path, Seen: "this program does not know the field, and drops it",
			Remedy: "remove it, or keep Karpenter for what it does",
		})
	}
	for _, e := range c.Invalid {
		out = append(out, Result{
			Status: Obstacle, Object: objectOf(o), Field: e.Field, Seen: "the definitions of this program reject the value: " + e.ErrorBody(),
			Remedy: "correct it before the definitions are applied",
		})
	}
	return out
}

// kubeletAnnotation has the kubelet settings that a NodePool had before version v1 of the API. Karpenter 1.0 applies them, later ones do
// not.
const kubeletAnnotation = "compatibility.karpenter.sh/v1beta1-kubelet-conversion"

// compatibility is about what an object has from before version v1.
func (f *Facts) compatibility(o *unstructured.Unstructured) []Result {
	text, has := o.GetAnnotations()[kubeletAnnotation]
	if !has || o.GetKind() == "NodeClaim" || strings.TrimSpace(text) == "" || strings.TrimSpace(text) == "{}" {
		return nil
	}
	result := Result{
		Status: Obstacle, Object: objectOf(o), Field: "metadata.annotations[" + kubeletAnnotation + "]",
		Seen:   "kubelet settings of version v1beta1, which Karpenter 1.0 applies to new nodes, and Dovetail does not",
		Remedy: "set spec.kubelet of the EC2NodeClass, and remove the annotation",
	}
	if k := f.Karpenter(); k != nil && k.Version != "" && !strings.HasPrefix(k.Version, "1.0.") {
		result.Status, result.Seen = Warning, "kubelet settings of version v1beta1, which have no effect any more, with Karpenter "+k.Version+" either"
	}
	return []Result{result}
}

// oncePerKind leaves one of the results that thousands of NodeClaims have in common.
func oncePerKind(all []Result) (out []Result) {
	type finding struct{ field, seen string }
	first, more := map[finding]int{}, map[int]int{}
	for _, r := range all {
		of := finding{r.Field, r.Seen}
		if !strings.HasPrefix(r.Object, "NodeClaim ") {
			out = append(out, r)
			continue
		}
		if at, again := first[of]; again {
			more[at]++
			continue
		}
		first[of] = len(out)
		out = append(out, r)
	}
	for at, n := range more {
		out[at].Seen += fmt.Sprintf("; the same of %d more", n)
	}
	return out
}

func objectOf(o *unstructured.Unstructured) string {
	if ns := o.GetNamespace(); ns != "" {
		return o.GetKind() + " " + ns + "/" + o.GetName()
	}
	return o.GetKind() + " " + o.GetName()
}

// withoutEffect are the fields that are accepted, and that nothing happens by.
func withoutEffect(o *unstructured.Unstructured) (out []Result) {
	object := objectOf(o)
	var fields []support.Field
	switch o.GetKind() {
	case "NodePool":
		var pool karpv1.NodePool
		if as(o, &pool) {
			fields = support.UnsupportedNodePool(&pool)
			if err := pool.RuntimeValidate(awsv1.Vocabulary()); err != nil {
				out = append(out, Result{
					Status: Obstacle, Object: object, Field: "spec.template.spec", Seen: err.Error(),
					Remedy: "correct it: nothing is launched for the pool, with Karpenter either",
				})
			}
		}
	case "EC2NodeClass":
		var class awsv1.EC2NodeClass
		if as(o, &class) {
			fields = support.UnsupportedNodeClass(&class)
		}
	}
	for _, field := range fields {
		out = append(out, Result{
			Status: Warning, Object: object, Field: field.Path, Seen: field.Message, Remedy: "remove it, if nodes may do without it",
		})
	}
	return out
}
