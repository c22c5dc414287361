package node_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/eks"
	"github.com/dovetail-k8s/dovetail/lab/awsim/iam"
	"github.com/dovetail-k8s/dovetail/lab/node/authn"
)

func TestInstanceJoins(t *testing.T) {
	t.Parallel()
	i := launch(t, host{labels: "team=a,karpenter.sh/nodepool=general"})
	node := joined(t, i)

	if want := "aws:///" + i.Zone + "/" + i.ID; node.Spec.ProviderID != want {
		t.Errorf("provider ID %q, want %q", node.Spec.ProviderID, want)
	}
	for key, want := range map[string]string{
		"team": "a", "karpenter.sh/nodepool": "general", // of the user data
		"kubernetes.io/hostname": i.PrivateDNSName, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", // of kubelet
		"topology.kubernetes.io/zone": i.Zone, "topology.kubernetes.io/region": region, "node.kubernetes.io/instance-type": "m5.large", // of the cloud
	} {
		if got := node.Labels[key]; got != want {
			t.Errorf("label %s=%s, want %s", key, got, want)
		}
	}
	wantTaints := []corev1.Taint{{Key: "example.com/startup", Effect: corev1.TaintEffectNoExecute}}
	if diff := cmp.Diff(wantTaints, node.Spec.Taints); diff != "" {
		t.Errorf("taints (-want +got)\n%s", diff)
	}
	// 8192 MiB less what firmware and kernel keep; less 500Mi reserved and 100Mi that must stay free.
	for name, want := range map[corev1.ResourceName][2]string{
		corev1.ResourceCPU: {"2", "1800m"}, corev1.ResourceMemory: {"7926Mi", "7326Mi"}, corev1.ResourcePods: {"20", "20"},
	} {
		capacity, allocatable := node.Status.Capacity[name], node.Status.Allocatable[name]
		if capacity.Cmp(resource.MustParse(want[0])) != 0 || allocatable.Cmp(resource.MustParse(want[1])) != 0 {
			t.Errorf("%s: capacity %s, allocatable %s; want %s", name, capacity.String(), allocatable.String(), want)
		}
	}
	addresses := map[corev1.NodeAddressType]string{}
	for _, a := range node.Status.Addresses {
		addresses[a.Type] = a.Address
	}
	if diff := cmp.Diff(map[corev1.NodeAddressType]string{
		corev1.NodeInternalIP: i.PrivateIP, corev1.NodeInternalDNS: i.PrivateDNSName, corev1.NodeHostName: i.PrivateDNSName,
	}, addresses); diff != "" {
		t.Errorf("addresses (-want +got)\n%s", diff)
	}

	var renewed time.Time
	eventually(t, func(ctx context.Context) error {
		lease, err := world.client.CoordinationV1().Leases("kube-node-lease").Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != node.UID {
			return fmt.Errorf("owners of the lease are %v, want the node", lease.OwnerReferences)
		}
		if renewed.IsZero() {
			renewed = lease.Spec.RenewTime.Time
		}
		if !lease.Spec.RenewTime.After(renewed) {
			return errors.New("lease is not renewed")
		}
		return nil
	})
}

// An image that was copied into the account boots like its source, whatever its name.
func TestACopiedImageJoins(t *testing.T) {
	joined(t, launch(t, host{copied: true}))
}

// A node has the name of its instance, also where the subnet names instances by their ID.
func TestANodeIsNamedByTheIDOfItsInstance(t *testing.T) {
	client := ec2.NewFromConfig(world.aws)
	out, err := client.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{{
		Name: aws.String("tag:karpenter.sh/discovery"), Values: []string{clusterName},
	}}})
	if err != nil || len(out.Subnets) < 2 {
		t.Fatalf("%d subnets, %v", len(out.Subnets), err)
	}
	if _, err := client.ModifySubnetAttribute(t.Context(), &ec2.ModifySubnetAttributeInput{
		SubnetId: out.Subnets[1].SubnetId, PrivateDnsHostnameTypeOnLaunch: ec2types.HostnameTypeResourceName,
	}); err != nil {
		t.Fatal(err)
	}
	i := launch(t, host{subnet: 1})
	node := joined(t, i)
	if want := i.ID + ".ec2.internal"; node.Name != want {
		t.Errorf("the node is %s, want %s", node.Name, want)
	}
}

func TestOtherImagesJoin(t *testing.T) {
	ca := base64.StdEncoding.EncodeToString(world.cluster.CA())
	for _, tt := range []struct{ name, image, userData string }{
		{"AL2", "amazon-eks-node-1.32", fmt.Sprintf(`#!/bin/bash -xe
/etc/eks/bootstrap.sh '%s' --apiserver-endpoint '%s' --b64-cluster-ca '%s' \
--use-max-pods false \
--kubelet-extra-args '--node-labels="family=AL2" --max-pods=11'`, clusterName, world.cluster.Endpoint(), ca)},
		{"Bottlerocket", "bottlerocket-aws-k8s-1.36-x86_64", fmt.Sprintf(`[settings.kubernetes]
cluster-name = '%s'
api-server = '%s'
cluster-certificate = '%s'
max-pods = 11
node-labels = {family = 'Bottlerocket'}`, clusterName, world.cluster.Endpoint(), ca)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			node := joined(t, launch(t, host{image: tt.image, userData: tt.userData}))
			if pods := node.Status.Capacity.Pods().Value(); node.Labels["family"] != tt.name || pods != 11 {
				t.Errorf("labels %v, %d pods", node.Labels, pods)
			}
		})
	}
}

// What keeps an instance out of the cluster is on its console, in kubelet's words.
func TestInstanceDoesNotJoin(t *testing.T) {
	for _, tt := range []struct {
		name    string
		machine host
		role    string
		console []string
	}{
		{
			name: "role not mapped", role: awsim.ControllerRole(clusterName),
			console: []string{`"Unable to register node with API server" err="Unauthorized"`},
		},
		{
			name: "access entry of the wrong type", role: newRole(t, "standard", eks.AccessEntry{Groups: []string{"viewers"}}),
			console: []string{`"Unable to register node with API server" err="nodes is forbidden: User`},
		},
		{
			name: "username of another kind", role: newRole(t, "misnamed", eks.AccessEntry{
				Username: "machine:{{SessionName}}",
				Groups:   []string{"custom:nodes"},
			}),
			console: []string{`"Unable to register node with API server" err="nodes is forbidden: User "machine:i-`},
		},
		{name: "CA of another cluster", machine: host{ca: otherCA(t)}, console: []string{
			`"Unable to register node with API server"`,
			"x509: certificate signed by unknown authority",
		}},
		{name: "endpoint that nobody serves", machine: host{
			userData: strings.ReplaceAll(nodeConfig(world.cluster.CA(), ""), world.cluster.Endpoint(), "https://127.0.0.1:1"),
		}, console: []string{`"Unable to register node with API server"`, "connect: connection refused"}},
		{
			name: "label that a node may not set", machine: host{labels: "node-role.kubernetes.io/worker=x"},
			console: []string{"unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels", "kubelet.service: Main process exited"},
		},
		{
			name: "user data of another family", machine: host{image: "amazon-eks-node-1.32"},
			console: []string{"no shell script in the user data calls /etc/eks/bootstrap.sh", "Failed to run module scripts-user"},
		},
		{name: "nonsense", machine: host{userData: "hello"}, console: []string{
			`"msg":"Command failed"`,
			"nodeadm-config.service: Main process exited",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.role != "" {
				tt.machine.profile = profile(t, tt.role)
			}
			i := launch(t, tt.machine)
			console(t, i, tt.console...)
			if _, err := world.client.CoreV1().Nodes().Get(t.Context(), i.PrivateDNSName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("get its node: %v, want not found", err)
			}
		})
	}
}

// newRole makes a role that instances may have, and maps it.
func newRole(t *testing.T, name string, entry eks.AccessEntry) string {
	t.Helper()
	role, err := world.sim.IAM().CreateRole(iam.Role{Name: name, TrustPolicy: `{"Version":"2012-10-17","Statement":[
		{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`})
	if err != nil {
		t.Fatal(err)
	}
	entry.PrincipalARN = role.ARN
	if _, err := world.sim.EKS().CreateAccessEntry(clusterName, entry); err != nil {
		t.Fatal(err)
	}
	return role.Name
}

func otherCA(t *testing.T) []byte {
	t.Helper()
	endpoint, err := authn.Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = endpoint.Close() })
	return endpoint.CA()
}

// A role that is mapped late lets the instance in: kubelet does not give up.
func TestInstanceJoinsOnceItsRoleIsMapped(t *testing.T) {
	t.Parallel()
	i := launch(t, host{profile: profile(t, "EKSClusterRole-"+clusterName)})
	console(t, i, `err="Unauthorized"`)
	if _, err := world.client.CoreV1().ConfigMaps("kube-system").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "aws-auth"},
		Data: map[string]string{"mapRoles": `- rolearn: ` + i.RoleARN + `
  username: system:node:{{EC2PrivateDNSName}}
  groups: [system:bootstrappers, system:nodes]
`},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	joined(t, i)
}

// A terminated instance falls silent; that its node goes is the cloud controller manager's work.
func TestTerminatedInstanceFallsSilent(t *testing.T) {
	t.Parallel()
	i := launch(t, host{})
	node := joined(t, i)
	terminate(t, i.ID)
	eventually(t, func(ctx context.Context) error {
		_, err := world.client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("get node: %w", errors.Join(err, errors.New("still there")))
	})
}

// What an instance runs instead of a boot finishes when it reboots. Then it boots as all others do.
func TestInstanceThatJoinedAsObjectsBootsOnceItReboots(t *testing.T) {
	t.Parallel()
	started, ended := make(chan struct{}), make(chan struct{})
	i, err := world.sim.CopyInstance(launch(t, host{}).ID, func(launched awsim.Instance) map[string]string {
		world.nodes.RunJoined(launched.ID, func(ctx context.Context) {
			close(started)
			<-ctx.Done()
			close(ended)
		})
		return launched.Tags
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminate(t, i.ID) })
	await := func(what string, c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(time.Minute):
			t.Fatalf("it has not %s", what)
		}
	}
	await("started", started)
	if _, err := world.client.CoreV1().Nodes().Get(t.Context(), i.PrivateDNSName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the node: %v, want not found", err)
	}
	if _, err := ec2.NewFromConfig(world.aws).RebootInstances(t.Context(), &ec2.RebootInstancesInput{InstanceIds: []string{i.ID}}); err != nil {
		t.Fatal(err)
	}
	await("ended", ended)
	joined(t, i)
}

// A kubelet with a Node that is deleted complains, and does not make it again.
func TestDeletedNodeStaysDeleted(t *testing.T) {
	t.Parallel()
	i := launch(t, host{})
	node := joined(t, i)
	if err := world.client.CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	console(t, i, fmt.Sprintf("Error updating node status, will retry\" err=\"error getting node %q", node.Name))
	if _, err := world.client.CoreV1().Nodes().Get(t.Context(), node.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the node: %v, want not found", err)
	}
	eventually(t, func(ctx context.Context) error { // the garbage collector takes the lease along, and it is not renewed
		_, err := world.client.CoordinationV1().Leases("kube-node-lease").Get(ctx, node.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("get the lease: %w", errors.Join(err, errors.New("still there")))
	})
}

// podOn is a pod for the node, past the scheduler; it tolerates the taint of the tests' user data.
func podOn(node, name string, edit func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name + "-" + node[:strings.Index(node, ".")],
			Namespace:   "default",
			Annotations: map[string]string{},
		},
		Spec: corev1.PodSpec{
			NodeName: node, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "main", Image: "nginx"}},
		},
	}
	if edit != nil {
		edit(p)
	}
	return p
}

func create(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	eventually(t, func(ctx context.Context) error { // a new namespace's service account takes a moment
		created, err := world.client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
		if err == nil {
			p = created
		}
		return err
	})
	return p
}

// becomes waits until the pod satisfies the condition, and returns it.
func becomes(t *testing.T, p *corev1.Pod, what string, holds func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var got *corev1.Pod
	eventually(t, func(ctx context.Context) (err error) {
		if got, err = world.client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !holds(got) {
			return fmt.Errorf("pod %s is not %s: %+v", p.Name, what, got.Status)
		}
		return nil
	})
	return got
}

func isRunning(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning }

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func TestPodsLive(t *testing.T) {
	t.Parallel()
	node := joined(t, launch(t, host{}))

	t.Run("runs, with an address of its own", func(t *testing.T) {
		t.Parallel()
		a := becomes(t, create(t, podOn(node.Name, "a", nil)), "ready", isReady)
		b := becomes(t, create(t, podOn(node.Name, "b", nil)), "ready", isReady)
		if a.Status.PodIP == "" || a.Status.PodIP == b.Status.PodIP {
			t.Errorf("addresses %q and %q", a.Status.PodIP, b.Status.PodIP)
		}
		if !isRunning(a) || a.Status.ContainerStatuses[0].State.Running == nil || a.Status.HostIP == "" {
			t.Errorf("status %+v", a.Status)
		}
	})

	t.Run("stays unready if its probe cannot succeed", func(t *testing.T) {
		t.Parallel()
		probed := func(command string) func(*corev1.Pod) {
			return func(p *corev1.Pod) {
				p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
					ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}},
				}
			}
		}
		bad := becomes(t, create(t, podOn(node.Name, "bad", probed("false"))), "running", isRunning)
		becomes(t, create(t, podOn(node.Name, "good", probed("true"))), "ready", isReady)
		if bad = becomes(t, bad, "running", isRunning); isReady(bad) || bad.Status.ContainerStatuses[0].Ready {
			t.Errorf("status %+v", bad.Status)
		}
	})

	t.Run("is refused if it does not fit", func(t *testing.T) {
		t.Parallel()
		p := becomes(t, create(t, podOn(node.Name, "big", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1900m")}
		})), "failed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		if want := "Pod was rejected: Node didn't have enough resource: cpu, requested: 1900, used: 0, capacity: 1800"; p.Status.Reason != "OutOfcpu" ||
			p.Status.Message != want {
			t.Errorf("reason %q, message %q; want OutOfcpu, %q", p.Status.Reason, p.Status.Message, want)
		}
	})

	t.Run("goes through init containers", func(t *testing.T) {
		t.Parallel()
		p := becomes(t, create(t, podOn(node.Name, "init", func(p *corev1.Pod) {
			always := corev1.ContainerRestartPolicyAlways
			p.Spec.InitContainers = []corev1.Container{
				{Name: "setup", Image: "busybox"},
				{Name: "sidecar", Image: "proxy", RestartPolicy: &always},
			}
		})), "ready", isReady)
		if s := p.Status.InitContainerStatuses; len(s) != 2 || s[0].State.Terminated == nil || s[1].State.Running == nil {
			t.Errorf("init containers %+v", s)
		}
	})
}

func TestJobsFinish(t *testing.T) {
	t.Parallel()
	launched := launch(t, host{labels: "for=jobs"})
	joined(t, launched)
	job := func(name, exitCode string) *batchv1.Job {
		return &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
			Spec: batchv1.JobSpec{Completions: new(int32(2)), BackoffLimit: new(int32(0)), Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"lab.dovetail.sh/exit-code": exitCode}},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, NodeSelector: map[string]string{"for": "jobs"},
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers:  []corev1.Container{{Name: "main", Image: "busybox", Command: []string{"sleep", "1"}}},
				},
			}},
		}
	}
	for _, tt := range []struct {
		job  *batchv1.Job
		want batchv1.JobConditionType
	}{{job("good", "0"), batchv1.JobComplete}, {job("bad", "3"), batchv1.JobFailed}} {
		if _, err := world.client.BatchV1().Jobs("default").Create(t.Context(), tt.job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func(ctx context.Context) error {
			got, err := world.client.BatchV1().Jobs("default").Get(ctx, tt.job.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, c := range got.Status.Conditions {
				if c.Type == tt.want && c.Status == corev1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("job %s: %+v", got.Name, got.Status)
		})
	}
}

func TestPodsEndInTheirTime(t *testing.T) {
	t.Parallel()
	node := joined(t, launch(t, host{}))
	for _, tt := range []struct {
		name  string
		edit  func(*corev1.Pod)
		grace int64
		least time.Duration
	}{
		{"at once", func(*corev1.Pod) {}, 30, 0},
		{"after preStop", func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}}}
		}, 30, 3 * time.Second},
		{"at the end of the grace period", func(p *corev1.Pod) { p.Annotations["lab.dovetail.sh/ignores-sigterm"] = "true" }, 4, 4 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := becomes(t, create(t, podOn(node.Name, "end-"+strings.ReplaceAll(tt.name, " ", "-")[:6], func(p *corev1.Pod) {
				p.Name = strings.ToLower(p.Name)
				tt.edit(p)
			})), "ready", isReady)
			start := time.Now()
			if err := world.client.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &tt.grace}); err != nil {
				t.Fatal(err)
			}
			eventually(t, func(ctx context.Context) error {
				_, err := world.client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return fmt.Errorf("get pod: %w", errors.Join(err, errors.New("still there")))
			})
			if took := time.Since(start); took < tt.least || tt.grace == 30 && took >= 30*time.Second {
				t.Errorf("took %v, want at least %v and less than the grace period", took, tt.least)
			}
		})
	}
}

// Nodes that somebody else makes get no heartbeat, and their pods do not run.
func TestHandMadeNodeIsLeftAlone(t *testing.T) {
	t.Parallel()
	hand, err := world.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "hand-made.example"},
		Spec: corev1.NodeSpec{
			Taints: []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pending := create(t, podOn(hand.Name, "p", nil))
	// By the time that an instance which is launched now has joined and runs a pod, this one would have too.
	node := joined(t, launch(t, host{}))
	becomes(t, create(t, podOn(node.Name, "q", nil)), "ready", isReady)

	got, err := world.client.CoreV1().Nodes().Get(t.Context(), hand.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tainted := false
	for _, taint := range got.Spec.Taints {
		tainted = tainted || taint.Key == "node.cloudprovider.kubernetes.io/uninitialized"
	}
	if !tainted || len(got.Status.Capacity) > 0 {
		t.Errorf("node was touched: %+v %+v", got.Spec, got.Status)
	}
	if pending = becomes(t, pending, "there", func(*corev1.Pod) bool { return true }); pending.Status.Phase != corev1.PodPending ||
		pending.Status.StartTime != nil {
		t.Errorf("pod on it: %+v", pending.Status)
	}
	if _, err := world.client.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), hand.Name, metav1.GetOptions{}); !apierrors.IsNotFound(
		err,
	) {
		t.Errorf("its lease: %v, want not found", err)
	}
}
