package migrate

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/crds"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/apiserver"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
)

const clusterUID = "3f2c1a9e-7d44-4c0b-9a55-0d6e1f2b3c4d"

// sound is a cluster that nothing keeps from being taken over.
func sound(t *testing.T) *Facts {
	t.Helper()
	f := &Facts{
		Cluster:    &doctor.Facts{Now: time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC), ClusterName: "shop"},
		ClusterUID: clusterUID, ConfigMaps: map[string]map[string]string{"karpenter/account": {"queue": "shop-interruptions"}},
		ObjectCounts: map[string]int{}, Webhooks: map[string][]apiserver.Webhook{}, Region: "eu-west-1", Account: "111122223333",
		RoleARN: "arn:aws:iam::111122223333:role/KarpenterController-shop", Selections: map[string]Selection{}, Drift: map[string]string{},
	}
	text, err := os.ReadFile("testdata/sound.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		o := unstructured.Unstructured{}
		if err := documents.Decode(&o.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		add(t, f, &o)
	}
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		for _, v := range d.Spec.Versions {
			d.Status.StoredVersions = append(d.Status.StoredVersions, v.Name)
		}
		d.Annotations = map[string]string{"meta.helm.sh/release-name": "karpenter-crd", "meta.helm.sh/release-namespace": "karpenter"}
		f.Definitions = append(f.Definitions, *d)
	}
	f.Cluster.Instances = []cloudprovider.Instance{{
		ID: "i-0123456789abcdef0", ProviderID: "aws:///eu-west-1a/i-0123456789abcdef0", NodeClaim: "general-x7k2p",
		Owner: cloudprovider.Adoptable, LaunchedAt: f.Cluster.Now.Add(-4 * time.Hour), State: cloudprovider.Running,
	}}
	for i := range f.Cluster.NodeClasses {
		f.Selections[f.Cluster.NodeClasses[i].Name] = Selection{Class: f.Cluster.NodeClasses[i].DeepCopy(), Conditions: []cloudprovider.Condition{
			{Type: awsv1.ConditionAMIsReady, Status: "True"},
		}}
	}
	return f
}

// add puts an object where gather puts it.
func add(t *testing.T, f *Facts, o *unstructured.Unstructured) {
	t.Helper()
	decode := func(into any) {
		if !as(o, into) {
			t.Fatalf("%s cannot be decoded", objectOf(o))
		}
	}
	switch o.GetKind() {
	case "Deployment":
		var d appsv1.Deployment
		decode(&d)
		f.Deployments = append(f.Deployments, d)
		return
	case "Node":
		var n corev1.Node
		decode(&n)
		f.Cluster.Nodes = append(f.Cluster.Nodes, n)
		return
	case "NodePool":
		var p karpv1.NodePool
		decode(&p)
		f.Cluster.NodePools = append(f.Cluster.NodePools, p)
	case "EC2NodeClass":
		var c awsv1.EC2NodeClass
		decode(&c)
		f.Cluster.NodeClasses = append(f.Cluster.NodeClasses, c)
	case "NodeClaim":
		var c karpv1.NodeClaim
		decode(&c)
		f.Cluster.NodeClaims = append(f.Cluster.NodeClaims, c)
	}
	f.Objects = append(f.Objects, *o)
}

// setEnv changes a variable of Karpenter.
func (f *Facts) setEnv(name, value string) {
	c := &f.Deployments[0].Spec.Template.Spec.Containers[0]
	for i := range c.Env {
		if c.Env[i].Name == name {
			c.Env[i] = corev1.EnvVar{Name: name, Value: value}
			return
		}
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
}

// object returns the object of a kind, as the API server has it.
func (f *Facts) object(kind string) *unstructured.Unstructured {
	for i := range f.Objects {
		if f.Objects[i].GetKind() == kind {
			return &f.Objects[i]
		}
	}
	return nil
}
