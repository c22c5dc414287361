// Package gather reads the facts that package migrate evaluates. It only reads, and it records what it cannot read.
package gather

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/crds"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/migrate"
)

// Kubernetes reads what the API server has. Named is the Deployment that runs Karpenter, as NAMESPACE/NAME; empty to find it. The error
// means that the cluster cannot be read.
func Kubernetes(ctx context.Context, live client.Reader, named string) (*migrate.Facts, error) {
	f := &migrate.Facts{Cluster: &doctor.Facts{}, Named: named}
	var system corev1.Namespace
	switch err := live.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system); {
	case apierrors.IsForbidden(err): // who may not read this may read the rest
		f.Cluster.Miss(migrate.Identity, err.Error())
	case err != nil:
		return nil, fmt.Errorf("read the namespace %s: %w", metav1.NamespaceSystem, err)
	}
	f.ClusterUID = string(system.UID)
	var deployments appsv1.DeploymentList
	if err := live.List(ctx, &deployments); err != nil {
		f.Cluster.Miss(migrate.Deployments, err.Error())
	}
	f.Deployments = deployments.Items
	var leases coordinationv1.LeaseList
	if err := live.List(ctx, &leases, client.MatchingFields{"metadata.name": migrate.LeaseName}); err != nil {
		f.Cluster.Miss(migrate.Leases, err.Error())
	}
	f.Leases = leases.Items
	definitions, err := readDefinitions(ctx, live)
	if err != nil {
		f.Cluster.Miss(migrate.Definitions, err.Error())
		f.Cluster.Miss(migrate.Objects, err.Error())
	}
	f.Definitions = definitions
	f.ObjectCounts = map[string]int{}
	for i := range definitions {
		readObjects(ctx, live, f, &definitions[i])
	}
	readAdmission(ctx, live, f)
	return f, nil
}

// readDefinitions reads those of the API groups of Karpenter.
func readDefinitions(ctx context.Context, live client.Reader) (out []apiextensionsv1.CustomResourceDefinition, err error) {
	groups := map[string]bool{}
	ours, err := crds.All()
	if err != nil {
		return nil, err
	}
	for _, d := range ours {
		groups[d.Spec.Group] = true
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinitionList"))
	if err := live.List(ctx, list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		group, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "group")
		if !groups[group] {
			continue
		}
		var d apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &d); err != nil {
			return nil, fmt.Errorf("CustomResourceDefinition %s: %w", list.Items[i].GetName(), err)
		}
		out = append(out, d)
	}
	return out, nil
}

// readObjects reads the objects of a definition in our version of the API, or counts them if we do not have the kind.
func readObjects(ctx context.Context, live client.Reader, f *migrate.Facts, d *apiextensionsv1.CustomResourceDefinition) {
	version := ""
	own, _ := crds.Of(d.Spec.Group, d.Spec.Names.Kind)
	for _, v := range d.Spec.Versions {
		if v.Served && (own == nil || v.Name == own.Spec.Versions[0].Name) {
			version = v.Name
		}
	}
	if version == "" {
		return // a check reports that the version is not served
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: d.Spec.Group, Version: version, Kind: d.Spec.Names.ListKind})
	switch err := live.List(ctx, list); {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
	case err != nil:
		f.Cluster.Miss(migrate.Objects, fmt.Sprintf("%s: %v", d.Name, err))
	case own == nil:
		f.ObjectCounts[d.Name] = len(list.Items)
	default:
		f.Objects = append(f.Objects, list.Items...)
	}
}

// Configuration reads the ConfigMaps that give Karpenter its environment, and the role of its ServiceAccount.
func Configuration(ctx context.Context, live client.Reader, f *migrate.Facts) {
	k := f.Karpenter()
	if k == nil {
		f.Cluster.Miss(migrate.Role, "no Deployment runs Karpenter")
		return
	}
	f.ConfigMaps = map[string]map[string]string{}
	for _, name := range k.ConfigMaps() {
		var m corev1.ConfigMap
		if err := live.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: name}, &m); err == nil {
			f.ConfigMaps[k.Namespace+"/"+name] = m.Data
		} else if !apierrors.IsNotFound(err) {
			f.Cluster.Miss(migrate.Deployments, fmt.Sprintf("ConfigMap %s/%s: %v", k.Namespace, name, err))
		}
	}
	var account corev1.ServiceAccount
	err := live.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.ServiceAccount}, &account)
	f.ServiceAccountKept = err == nil && migrate.ReleaseOf(&account) != k.HelmRelease()
	if f.RoleGiven = f.RoleARN != ""; f.RoleGiven {
		return
	}
	if f.RoleARN = account.Annotations[roleAnnotation]; f.RoleARN == "" {
		why := fmt.Sprintf("ServiceAccount %s/%s has neither the annotation %s nor a pod identity association: name the role by --role ARN",
			k.Namespace, k.ServiceAccount, roleAnnotation)
		if err != nil {
			why = err.Error()
		}
		f.Cluster.Miss(migrate.Role, why)
	}
}

// roleAnnotation is the one by which EKS gives a ServiceAccount its role.
const roleAnnotation = "eks.amazonaws.com/role-arn"

// few shortens a list of errors.
func few(errs []string) string {
	const most = 3
	if len(errs) > most {
		return strings.Join(errs[:most], "; ") + fmt.Sprintf("; and %d more", len(errs)-most)
	}
	return strings.Join(errs, "; ")
}
