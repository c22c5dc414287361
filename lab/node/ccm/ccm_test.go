package ccm

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const id = "i-0123456789abcdef0"

// cloud is an EC2 with at most one instance.
type cloud struct {
	mu    sync.Mutex
	state ec2types.InstanceStateName // empty = unknown to EC2
}

func (c *cloud) set(state ec2types.InstanceStateName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = state
}

func (c *cloud) DescribeInstances(
	context.Context,
	*ec2.DescribeInstancesInput,
	...func(*ec2.Options),
) (*ec2.DescribeInstancesOutput, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == "" {
		return nil, &smithy.GenericAPIError{Code: "InvalidInstanceID.NotFound", Message: "The instance ID does not exist"}
	}
	return &ec2.DescribeInstancesOutput{Reservations: []ec2types.Reservation{{Instances: []ec2types.Instance{{
		InstanceId: aws.String(id), InstanceType: ec2types.InstanceTypeM5Large, State: &ec2types.InstanceState{Name: c.state},
		Placement:      &ec2types.Placement{AvailabilityZone: aws.String("us-east-1a"), AvailabilityZoneId: aws.String("use1-az1")},
		PrivateDnsName: aws.String("ip-10-0-1-5.ec2.internal"), PrivateIpAddress: aws.String("10.0.1.5"),
	}}}}}, nil
}

// registered is a node as its kubelet creates it.
func registered(edits ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "1"},
		Spec: corev1.NodeSpec{ProviderID: "aws:///us-east-1a/" + id, Taints: []corev1.Taint{
			{Key: "example.com/startup", Effect: corev1.TaintEffectNoExecute},
			{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule},
		}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for _, e := range edits {
		e(n)
	}
	return n
}

func initialized(n *corev1.Node) { n.Spec.Taints = nil }

func notReady(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }

// apiServer holds the node and rejects patches of another version of it than the present one.
// Before each patch it lets meanwhile change the node, if given.
func apiServer(n *corev1.Node, meanwhile func(*corev1.Node) bool) *fake.Clientset {
	client := fake.NewClientset(n)
	nodes := corev1.SchemeGroupVersion.WithResource("nodes")
	bump := func(n *corev1.Node) error {
		version, err := strconv.Atoi(n.ResourceVersion)
		if err != nil {
			return err
		}
		n.ResourceVersion = strconv.Itoa(version + 1)
		return client.Tracker().Update(nodes, n, "")
	}
	apply := clienttesting.ObjectReaction(client.Tracker())
	client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		object, err := client.Tracker().Get(nodes, "", patch.GetName())
		if err != nil {
			return true, nil, err
		}
		current := object.(*corev1.Node).DeepCopy()
		if meanwhile != nil && meanwhile(current) {
			if err := bump(current); err != nil {
				return true, nil, err
			}
		}
		var precondition corev1.Node
		if err := json.Unmarshal(patch.GetPatch(), &precondition); err != nil {
			return true, nil, err
		}
		if v := precondition.ResourceVersion; v != "" && v != current.ResourceVersion {
			return true, nil, apierrors.NewConflict(nodes.GroupResource(), current.Name, nil)
		}
		handled, object, err := apply(action)
		if err != nil {
			return handled, nil, err
		}
		written := object.(*corev1.Node).DeepCopy()
		return true, written, bump(written)
	})
	return client
}

// run lets a manager work for some time.
func run(t *testing.T, client *fake.Clientset, c *cloud, test func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- New(Config{Client: client, EC2: c, Region: "us-east-1"}).Run(ctx) }()
	test()
	synctest.Wait()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func get(t *testing.T, client *fake.Clientset) *corev1.Node {
	t.Helper()
	n, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNodeIsInitializedWhenItsInstanceRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, c := apiServer(registered(), nil), &cloud{}
		run(t, client, c, func() {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if n := get(t, client); !uninitialized(n) || n.Labels["topology.kubernetes.io/zone"] != "" {
				t.Errorf("instance is not visible yet, but the node was touched: %+v", n)
			}
			c.set(ec2types.InstanceStateNamePending)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if !uninitialized(get(t, client)) {
				t.Error("the taint is gone although the instance does not run yet")
			}
			c.set(ec2types.InstanceStateNameRunning)
			time.Sleep(20 * time.Second)
		})
		n := get(t, client)
		if diff := cmp.Diff(map[string]string{
			"node.kubernetes.io/instance-type": "m5.large", "beta.kubernetes.io/instance-type": "m5.large",
			"topology.kubernetes.io/zone": "us-east-1a", "failure-domain.beta.kubernetes.io/zone": "us-east-1a",
			"topology.kubernetes.io/region": "us-east-1", "failure-domain.beta.kubernetes.io/region": "us-east-1",
			"topology.k8s.aws/zone-id": "use1-az1",
		}, n.Labels); diff != "" {
			t.Errorf("labels (-want +got)\n%s", diff)
		}
		if len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "example.com/startup" {
			t.Errorf("taints %+v, want only the startup taint", n.Spec.Taints)
		}
		if len(n.Status.Addresses) != 3 {
			t.Errorf("addresses %+v", n.Status.Addresses)
		}
	})
}

// Somebody removes a taint between the manager's read and its write: the write must not bring it back.
func TestRemovedTaintIsNotResurrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := apiServer(registered(), func(n *corev1.Node) bool {
			had := hasTaint(n, "example.com/startup")
			n.Spec.Taints = without(n.Spec.Taints, "example.com/startup")
			return had
		})
		run(t, client, &cloud{state: ec2types.InstanceStateNameRunning}, func() { time.Sleep(10 * time.Second) })
		if n := get(t, client); len(n.Spec.Taints) != 0 {
			t.Errorf("taints %+v, want none", n.Spec.Taints)
		}
	})
}

func TestNodesOfInstancesThatAreGone(t *testing.T) {
	for _, tt := range []struct {
		name  string
		node  *corev1.Node
		state ec2types.InstanceStateName
		want  string
	}{
		{"silent and terminated", registered(initialized, notReady), ec2types.InstanceStateNameTerminated, "gone"},
		{"silent and forgotten by EC2", registered(initialized, notReady), "", "gone"},
		{"silent and stopped", registered(initialized, notReady), ec2types.InstanceStateNameStopped, "tainted"},
		{"silent and running", registered(initialized, notReady), ec2types.InstanceStateNameRunning, "there"},
		{"silent and shutting down", registered(initialized, notReady), ec2types.InstanceStateNameShuttingDown, "there"},
		{"counts as alive", registered(initialized), ec2types.InstanceStateNameTerminated, "there"},
		{"no instance", registered(initialized, notReady, func(n *corev1.Node) { n.Spec.ProviderID = "" }), "", "there"},
		{"of another cloud", registered(initialized, notReady, func(n *corev1.Node) { n.Spec.ProviderID = "kind://docker/kind/n" }), "", "there"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := apiServer(tt.node, nil)
				run(t, client, &cloud{state: tt.state}, func() { time.Sleep(11 * time.Second) })
				got := "there"
				switch n := get(t, client); {
				case n == nil:
					got = "gone"
				case hasTaint(n, "node.cloudprovider.kubernetes.io/shutdown"):
					got = "tainted"
				}
				if got != tt.want {
					t.Errorf("node is %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// slowCloud is an EC2 that takes its time over each call.
type slowCloud struct{ cloud }

func (c *slowCloud) DescribeInstances(
	ctx context.Context,
	in *ec2.DescribeInstancesInput,
	opts ...func(*ec2.Options),
) (*ec2.DescribeInstancesOutput, error) {
	time.Sleep(50 * time.Millisecond)
	return c.cloud.DescribeInstances(ctx, in, opts...)
}

// A thousand nodes join at once. Where each call to EC2 takes 50 milliseconds, all of them are initialized within five
// seconds; a manager that is slowed to one node a second has done 20 after 20 seconds.
func TestThousandNodesAtOnceAreInitializedByHundredsUnlessSlowed(t *testing.T) {
	const nodes = 1000
	for _, tt := range []struct {
		rate     float64
		after    time.Duration
		min, max int
	}{{0, 5 * time.Second, nodes, nodes}, {1, 20 * time.Second, 18, 22}} {
		synctest.Test(t, func(t *testing.T) {
			client := fake.NewClientset()
			for i := range nodes {
				node := registered()
				node.Name, node.UID = fmt.Sprintf("n%04d", i), types.UID(fmt.Sprint(i))
				node.Spec.ProviderID = fmt.Sprintf("aws:///us-east-1a/i-%017x", i)
				if err := client.Tracker().Add(node); err != nil {
					t.Fatal(err)
				}
			}
			var mu sync.Mutex
			done := 0
			client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
				patch := action.(clienttesting.PatchAction)
				if patch.GetSubresource() == "" {
					mu.Lock()
					done++
					mu.Unlock()
				}
				object, err := client.Tracker().Get(action.GetResource(), "", patch.GetName())
				return true, object, err // what the patch states is the subject of other tests
			})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() {
				ended <- New(Config{Client: client, EC2: &slowCloud{cloud{state: ec2types.InstanceStateNameRunning}}, Region: "us-east-1", Rate: tt.rate}).Run(ctx)
			}()
			time.Sleep(tt.after)
			synctest.Wait()
			mu.Lock()
			if done < tt.min || done > tt.max {
				t.Errorf("at a rate of %v, %d of %d nodes are initialized after %v, want %d to %d", tt.rate, done, nodes, tt.after, tt.min, tt.max)
			}
			mu.Unlock()
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
