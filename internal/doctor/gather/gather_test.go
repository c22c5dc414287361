package gather_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/doctor/gather"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// account is an AWS account with some instances of the cluster's name.
type account []cloudprovider.Instance

func (a account) List(context.Context) ([]cloudprovider.Instance, error) { return a, nil }

func (account) InstanceTypes(context.Context, *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	return nil, nil
}

func (account) CheckNodeClass(context.Context, *awsv1.EC2NodeClass) []cloudprovider.Finding {
	return nil
}

func (account) MissingPermissions(context.Context) []string { return nil }

// While it is not known whether the account has this cluster, nothing is concluded from the instances that it lacks: six healthy nodes of
// another region would be deleted. One instance that both know proves it.
func TestInstancesOfADoubtfulAccountProveNothing(t *testing.T) {
	now := time.Date(2026, 11, 2, 3, 12, 0, 0, time.UTC)
	created := metav1.NewTime(now.Add(-time.Hour))
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "general-1", CreationTimestamp: created}}
	claim.Status.ProviderID = "aws:///z-a/i-1"
	other := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "general-2", CreationTimestamp: created}}
	other.Status.ProviderID = "aws:///z-a/i-2"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", CreationTimestamp: created}, Spec: corev1.NodeSpec{ProviderID: "aws:///z-a/i-1"}}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, karpv1.AddToScheme, awsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(claim, other, node).Build()
	run := func(a account, unproven string) (found []string, skipped string) {
		report := doctor.Run(gather.Facts(t.Context(), gather.Sources{
			Kubernetes: kube, Cloud: a, ClusterName: "shop", Unproven: unproven, Now: now,
		}))
		for _, f := range report.Findings {
			if f.Check == "nodes-without-instance" {
				found = append(found, f.Object+": "+f.Remedy)
			}
		}
		for _, n := range report.NotChecked {
			skipped += n.Check + " " + n.Why + "\n"
		}
		return found, skipped
	}
	const doubt = "EKS did not return the cluster: AccessDenied"
	found, skipped := run(account{}, doubt)
	if len(found) > 0 || !strings.Contains(skipped, "nodes-without-instance ") || !strings.Contains(skipped, "identity-cluster ") ||
		!strings.Contains(skipped, doubt) {
		t.Errorf("in a doubtful account: %q, not checked:\n%s", found, skipped)
	}
	mine := account{{ID: "i-1", Owner: cloudprovider.Unknown, LaunchedAt: created.Time}}
	for name, unproven := range map[string]string{"an account with an instance of the cluster": doubt, "the account of the cluster": ""} {
		if found, skipped := run(mine, unproven); len(found) != 1 || !strings.Contains(found[0], "kubectl delete nodeclaim general-2") {
			t.Errorf("in %s: %q, not checked:\n%s", name, found, skipped)
		}
	}
}
