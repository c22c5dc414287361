package awstest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/adapter"
	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

const (
	clusterName = "blue"
	endpoint    = "https://ABC.gr7.us-east-1.eks.amazonaws.com"
)

// world is an account with one EKS cluster.
type world struct {
	*awsimtest.World
	t  testing.TB
	ca []byte
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{World: awsimtest.Start(t), t: t, ca: certificate(t)}
	if err := w.Sim.SeedCluster(awsim.ClusterSpec{Name: clusterName, Version: "1.32", Endpoint: endpoint, CA: w.ca}); err != nil {
		t.Fatal(err)
	}
	return w
}

// certificate is a certificate authority in PEM.
func certificate(t testing.TB) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "kubernetes"},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// config is what the controller of a cluster with this UID is configured with.
func (w *world) config(uid string) adapter.Config {
	prices, err := offline.Load()
	if err != nil {
		w.t.Fatal(err)
	}
	sdk := w.As(w.controllerKeys())
	sdk.Retryer = func() awssdk.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.Retryables = []retry.IsErrorRetryable{retry.RetryableConnectionError{}} // answers are for the adapter to judge
		})
	}
	return adapter.Config{
		AWS:      sdk,
		Identity: identity.Identity{ClusterUID: uid, ClusterName: clusterName, AccountID: "111122223333", Region: "us-east-1"},
		Cluster:  bootstrap.Cluster{Name: clusterName, DNS: "10.100.0.10"}, MemoryOverhead: 0.075, ReservedCapacity: true,
		DisableDryRun: true, Fallback: prices, Now: w.Clock.Now, Jitter: func() float64 { return 0.5 }, Log: slog.New(slog.DiscardHandler),
		Window: batch.Window{Idle: time.Millisecond, Max: 20 * time.Millisecond, Items: 500},
	}
}

// start runs a controller process as far as its cloud goes.
func (w *world) start(cfg adapter.Config) *cloud {
	w.t.Helper()
	c, err := newCloud(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := c.Preflight(context.Background(), ekscluster.APIServer{Endpoint: "https://10.100.0.1", CA: w.ca}); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// nodeClass is a class with everything that a class must have.
func nodeClass(name string) *awsv1.EC2NodeClass {
	discovery := map[string]string{"karpenter.sh/discovery": clusterName}
	return &awsv1.EC2NodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), Generation: 1},
		Spec: awsv1.EC2NodeClassSpec{
			AMISelectorTerms:           []awsv1.AMISelectorTerm{{Alias: "al2023@latest"}},
			SubnetSelectorTerms:        []awsv1.SubnetSelectorTerm{{Tags: discovery}},
			SecurityGroupSelectorTerms: []awsv1.SecurityGroupSelectorTerm{{Tags: discovery}},
			Role:                       awsim.NodeRole(clusterName),
			Tags:                       map[string]string{"team": "a"},
		},
	}
}

// resolve does what the reconciler of node classes does: it writes down what the class comes to.
func resolve(t testing.TB, c *cloud, class *awsv1.EC2NodeClass) {
	t.Helper()
	r := c.ResolveNodeClass(context.Background(), class)
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	for _, condition := range r.Conditions {
		// There is no API server here that could report all that decides about joining.
		unknown := condition.Type == awsv1.ConditionNodesCanJoin && condition.Status == metav1.ConditionUnknown
		if condition.Status != metav1.ConditionTrue && !unknown {
			t.Fatalf("%s is %s: %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message)
		}
	}
	class.Status = r.Status
}

// claim requests one CPU, on-demand unless the requirements name other capacity types.
func claim(name string, requirements ...karpv1.Requirement) *karpv1.NodeClaim {
	return &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			UID:    types.UID("uid-of-" + name),
			Labels: map[string]string{karpv1.LabelNodePool: "general"},
		},
		Spec: karpv1.NodeClaimSpec{
			Requirements: requirements,
			Resources:    karpv1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
			NodeClassRef: karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"},
		},
	}
}

func in(key string, values ...string) karpv1.Requirement {
	return karpv1.Requirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

var onDemand = in(karpv1.LabelCapacityType, "on-demand")

// runningInstances are the instances that cost money.
func (w *world) runningInstances() []awsim.Instance {
	var out []awsim.Instance
	for _, i := range w.Sim.Instances() {
		if i.State == string(cloudprovider.Pending) || i.State == string(cloudprovider.Running) {
			out = append(out, i)
		}
	}
	return out
}

// called counts calls of an action that were made.
func (w *world) called(action string) int {
	n := 0
	for _, c := range w.Sim.Calls() {
		if c.Action == action {
			n++
		}
	}
	return n
}

// succeeded counts calls of an action that succeeded.
func (w *world) succeeded(action string) int {
	n := 0
	for _, c := range w.Sim.Calls() {
		if c.Action == action && c.ErrorCode == "" {
			n++
		}
	}
	return n
}

// advancePastDelays lets everything in EC2 that takes a while happen.
func (w *world) advancePastDelays() { w.Clock.Advance(10 * time.Second) }
