package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/crds"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// fieldOwner is who applies manifests.
const fieldOwner = client.FieldOwner("dovetail-lab")

// install creates the product's CustomResourceDefinitions, and returns when the API server serves them.
func (c *Cluster) install(ctx context.Context) error {
	c.progress("CRDs", false)
	definitions, err := crds.All()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, crd := range definitions {
		group.Go(func() error {
			if err := c.Client.Create(ctx, crd); err != nil {
				return fmt.Errorf("create CustomResourceDefinition %s: %w", crd.Name, err)
			}
			return c.discovered(ctx, crd)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	c.progress("CRDs", true)
	return nil
}

// discovered waits until the API server serves a kind, and reports it to those who find out what it serves: discovery follows
// the condition Established a moment later, and a watch begun in between would find no such kind.
func (c *Cluster) discovered(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	kind := schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
	return Until(ctx, func() error {
		current := &apiextensionsv1.CustomResourceDefinition{}
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(crd), current); err != nil {
			return err
		}
		if !established(current) {
			return fmt.Errorf("CustomResourceDefinition %s is not established", crd.Name)
		}
		for _, version := range crd.Spec.Versions {
			if _, err := c.Client.RESTMapper().RESTMapping(kind, version.Name); version.Served && err != nil {
				return fmt.Errorf("CustomResourceDefinition %s is established, but not discovered: %w", crd.Name, err)
			}
		}
		return nil
	})
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// Apply creates or changes the objects of a YAML file, in its order.
func (c *Cluster) Apply(ctx context.Context, manifest []byte) error {
	objects, err := decode(manifest)
	if err != nil {
		return err
	}
	for _, o := range objects {
		err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), fieldOwner, client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// Delete deletes the objects of a YAML file, in its order. One that is gone already is no failure.
func (c *Cluster) Delete(ctx context.Context, manifest []byte) error {
	objects, err := decode(manifest)
	if err != nil {
		return err
	}
	for _, o := range objects {
		err := c.Client.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

func decode(manifest []byte) ([]*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	var out []*unstructured.Unstructured
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		if len(o.Object) == 0 {
			continue
		}
		if o.GetNamespace() == "" && namespaced(o.GetKind()) {
			o.SetNamespace(metav1.NamespaceDefault)
		}
		out = append(out, o)
	}
}

// namespaced reports whether objects of a kind that manifests of the lab hold live in a namespace.
func namespaced(kind string) bool {
	switch kind {
	case "Deployment",
		"ResourceClaimTemplate",
		"StatefulSet",
		"DaemonSet",
		"ConfigMap",
		"ServiceAccount",
		"Role",
		"RoleBinding",
		"Pod",
		"Job",
		"PersistentVolumeClaim",
		"PodDisruptionBudget",
		"PodTemplate",
		"CapacityBuffer":
		return true
	default:
		return false
	}
}

// Scale sets the replicas of a Deployment in the default namespace.
func (c *Cluster) Scale(ctx context.Context, deployment string, replicas int32) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: deployment}}
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	if err := c.Client.SubResource("scale").Update(ctx, d, client.WithSubResourceBody(scale)); err != nil {
		return fmt.Errorf("scale Deployment %s to %d: %w", deployment, replicas, err)
	}
	return nil
}

// ScalePool sets the number of nodes of a NodePool, as kubectl scale does.
func (c *Cluster) ScalePool(ctx context.Context, pool string, replicas int32) error {
	p := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: pool}}
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	if err := c.Client.SubResource("scale").Update(ctx, p, client.WithSubResourceBody(scale)); err != nil {
		return fmt.Errorf("scale NodePool %s to %d: %w", pool, replicas, err)
	}
	return nil
}

// ScaleStateful sets the replicas of a StatefulSet in the default namespace.
func (c *Cluster) ScaleStateful(ctx context.Context, name string, replicas int32) error {
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	if err := c.Client.SubResource("scale").Update(ctx, s, client.WithSubResourceBody(scale)); err != nil {
		return fmt.Errorf("scale StatefulSet %s to %d: %w", name, replicas, err)
	}
	return nil
}

// DaemonSet is a DaemonSet as it is.
func (c *Cluster) DaemonSet(ctx context.Context, namespace, name string) (*appsv1.DaemonSet, error) {
	ds := &appsv1.DaemonSet{}
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, ds); err != nil {
		return nil, fmt.Errorf("DaemonSet %s/%s: %w", namespace, name, err)
	}
	return ds, nil
}

// pollInterval is short against what is waited for, and long against the cost of a look at watched state. A look that costs more, such as a
// scrape of metrics or a run of dovetail, is taken less often: it takes a thirtieth of the time, or a second passes between two.
const (
	pollInterval    = 50 * time.Millisecond
	maxPollInterval = time.Second
)

// Until repeats check until it returns nil. When ctx is done before, the error is what check stated last.
func Until(ctx context.Context, check func() error) error {
	for {
		began := time.Now()
		err := check()
		if err == nil {
			return nil
		}
		pause := time.NewTimer(min(max(pollInterval, 30*time.Since(began)), maxPollInterval))
		select {
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-pause.C:
		}
	}
}
