package node_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/image"
	"github.com/dovetail-k8s/dovetail/lab/controlplane"
	"github.com/dovetail-k8s/dovetail/lab/node"
	"github.com/dovetail-k8s/dovetail/lab/node/authn"
	"github.com/dovetail-k8s/dovetail/lab/node/ccm"
	"github.com/dovetail-k8s/dovetail/lab/node/kubelet"
)

const (
	region      = "us-east-1"
	clusterName = "dev"
	// within is how long a test waits for what takes moments on an idle host.
	within = 2 * time.Minute
)

// lab is an AWS, a cluster in it, and the instances: booted once for all tests of this package, each of
// which launches instances of its own.
type lab struct {
	sim     *awsim.Sim
	cluster *controlplane.Cluster
	client  kubernetes.Interface
	aws     aws.Config
	nodes   *node.Simulator

	dir    string
	server *httptest.Server
	stop   context.CancelFunc
	work   sync.WaitGroup
	failed []error
	mu     sync.Mutex
}

var world *lab

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	var err error
	if world, err = newLab(); err != nil {
		return 1, err
	}
	code := m.Run()
	return code, world.close()
}

// executable is the binary that holds the control plane's components.
func executable() (string, error) {
	path := os.Getenv("DOVETAIL_LAB")
	if path == "" {
		path = filepath.Join("..", "..", "bin", "dovetail-lab")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the control plane's binary is missing (%w): run `make build`, or set DOVETAIL_LAB", err)
	}
	return path, nil
}

func newLab() (*lab, error) {
	exe, err := executable()
	if err != nil {
		return nil, err
	}
	w := &lab{}
	if w.sim, err = awsim.New(awsim.Options{Region: region}); err != nil {
		return nil, err
	}
	if w.dir, err = os.MkdirTemp("", "node-"); err != nil {
		return nil, err
	}
	w.server = httptest.NewServer(w.sim)
	w.aws = aws.Config{
		Region: region, BaseEndpoint: &w.server.URL, Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	endpoint, err := authn.Listen()
	if err != nil {
		return nil, err
	}
	if w.cluster, err = controlplane.Start(ctx, controlplane.Config{
		Name: clusterName, Dir: filepath.Join(w.dir, "cluster"), Executable: exe,
		TokenWebhook: endpoint.URL(), TokenWebhookCA: endpoint.CA(),
	}); err != nil {
		return nil, err
	}
	if w.client, err = kubernetes.NewForConfig(w.cluster.RESTConfig()); err != nil {
		return nil, err
	}
	if err := w.sim.SeedCluster(awsim.ClusterSpec{
		Name: clusterName, Version: w.cluster.Version(), Endpoint: w.cluster.Endpoint(), CA: w.cluster.CA(),
	}); err != nil {
		return nil, err
	}
	if err := authn.InstallRBAC(ctx, w.client); err != nil {
		return nil, err
	}
	return w, w.startNodes(ctx, endpoint)
}

// startNodes runs what is under test.
func (w *lab) startNodes(ctx context.Context, endpoint *authn.Endpoint) error {
	authenticator, err := authn.New(authn.Config{
		Cluster: clusterName, STSEndpoint: w.server.URL, EKS: eks.NewFromConfig(w.aws), EC2: ec2.NewFromConfig(w.aws),
		ConfigMaps: w.client.CoreV1().ConfigMaps("kube-system"),
	})
	if err != nil {
		return err
	}
	farm, err := node.New(node.Config{
		Cloud: w.sim, Region: region, STSEndpoint: w.server.URL, Boot: 100 * time.Millisecond,
		Kubelet: kubelet.Timing{Lease: time.Second, Status: time.Second},
	})
	if err != nil {
		return err
	}
	w.nodes = farm
	identity, err := w.cluster.ClientConfig(authn.CloudControllerManager)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(identity)
	if err != nil {
		return err
	}
	manager := ccm.New(ccm.Config{Client: client, EC2: ec2.NewFromConfig(w.aws), Region: region, Monitor: time.Second})
	for _, run := range []func() error{
		func() error { return endpoint.Serve(ctx, authenticator) },
		func() error { return farm.Run(ctx) },
		func() error { return manager.Run(ctx) },
	} {
		w.work.Go(func() {
			if err := run(); err != nil {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.failed = append(w.failed, err)
			}
		})
	}
	return nil
}

func (w *lab) close() error {
	w.stop()
	w.work.Wait()
	w.server.Close()
	return errors.Join(append(w.failed, w.cluster.Stop(context.Background()), os.RemoveAll(w.dir))...)
}

// host is an instance to launch.
type host struct {
	profile  string // default: one with the cluster's node role
	image    string // prefix of the image's name; default Amazon Linux 2023
	copied   bool   // the instance is of a copy of the image
	subnet   int    // of those of the cluster
	userData string // default: a NodeConfig of the cluster with labels and taints
	labels   string // key=value,...
	ca       []byte // default: the cluster's
}

// launch runs an instance for the test, and terminates it when the test finishes.
func launch(t *testing.T, m host) awsim.Instance {
	t.Helper()
	if m.profile == "" {
		m.profile = profile(t, awsim.NodeRole(clusterName))
	}
	if m.image == "" {
		m.image = "amazon-eks-node-al2023-x86_64-standard-" + world.cluster.Version()
	}
	if m.ca == nil {
		m.ca = world.cluster.CA()
	}
	if m.userData == "" {
		m.userData = nodeConfig(m.ca, m.labels)
	}
	client := ec2.NewFromConfig(world.aws)
	subnets, err := client.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{{
		Name: aws.String("tag:karpenter.sh/discovery"), Values: []string{clusterName},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	boots := imageID(t, m.image)
	if m.copied {
		made, err := client.CopyImage(t.Context(), &ec2.CopyImageInput{
			SourceImageId: &boots, SourceRegion: aws.String(region), Name: aws.String("golden"),
		})
		if err != nil {
			t.Fatal(err)
		}
		boots = *made.ImageId
	}
	out, err := client.RunInstances(t.Context(), &ec2.RunInstancesInput{
		ImageId: &boots, InstanceType: ec2types.InstanceTypeM5Large, MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		SubnetId: subnets.Subnets[m.subnet].SubnetId, IamInstanceProfile: &ec2types.IamInstanceProfileSpecification{Name: &m.profile},
		UserData: aws.String(base64.StdEncoding.EncodeToString([]byte(m.userData))),
	})
	if err != nil {
		t.Fatal(err)
	}
	id := *out.Instances[0].InstanceId
	t.Cleanup(func() { terminate(t, id) })
	for _, i := range world.sim.Instances() {
		if i.ID == id {
			return i
		}
	}
	t.Fatalf("instance %s is not in the account", id)
	return awsim.Instance{}
}

func terminate(t *testing.T, id string) {
	t.Helper()
	// Not the test's context: this also runs when the test is over.
	if _, err := ec2.NewFromConfig(world.aws).TerminateInstances(context.Background(), &ec2.TerminateInstancesInput{InstanceIds: []string{id}}); err != nil {
		t.Error(err)
	}
}

func imageID(t *testing.T, prefix string) string {
	t.Helper()
	found := ""
	for _, i := range image.List(region) {
		if strings.HasPrefix(i.Name, prefix) {
			found = i.ID
		}
	}
	if found == "" {
		t.Fatalf("no image %q", prefix)
	}
	return found
}

// profile makes an instance profile of the test's own that holds the role.
func profile(t *testing.T, role string) string {
	t.Helper()
	name := strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())
	client := iam.NewFromConfig(world.aws)
	if _, err := client.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{InstanceProfileName: &name}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AddRoleToInstanceProfile(t.Context(), &iam.AddRoleToInstanceProfileInput{InstanceProfileName: &name, RoleName: &role}); err != nil {
		t.Fatal(err)
	}
	return name
}

func nodeConfig(ca []byte, labels string) string {
	return fmt.Sprintf(`apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    name: %s
    apiServerEndpoint: %s
    certificateAuthority: %s
    cidr: 10.100.0.0/16
  kubelet:
    config:
      maxPods: 20
      kubeReserved: {cpu: 200m, memory: 500Mi}
      registerWithTaints:
      - {key: example.com/startup, effect: NoExecute}
    flags:
    - --node-labels="%s"
`, clusterName, world.cluster.Endpoint(), base64.StdEncoding.EncodeToString(ca), labels)
}

// eventually waits until check returns nil, and fails the test with its last error otherwise.
func eventually(t *testing.T, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, within, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("after %v: %v (%v)", within, last, err)
	}
}

// console waits until the instance's console output holds all of the texts.
func console(t *testing.T, i awsim.Instance, texts ...string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		out, err := ec2.NewFromConfig(world.aws).GetConsoleOutput(ctx, &ec2.GetConsoleOutputInput{InstanceId: &i.ID})
		if err != nil {
			return err
		}
		got, err := base64.StdEncoding.DecodeString(aws.ToString(out.Output))
		if err != nil {
			return err
		}
		for _, text := range texts {
			if !bytes.Contains(got, []byte(text)) {
				return fmt.Errorf("console lacks %q:\n%s", text, got)
			}
		}
		return nil
	})
}

// joined waits until the instance's node is ready and initialized by the cloud controller manager.
func joined(t *testing.T, i awsim.Instance) *corev1.Node {
	t.Helper()
	var node *corev1.Node
	eventually(t, func(ctx context.Context) (err error) {
		if node, err = world.client.CoreV1().Nodes().Get(ctx, i.PrivateDNSName, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, taint := range node.Spec.Taints {
			if taint.Key != "example.com/startup" {
				return fmt.Errorf("node has taint %s", taint.Key)
			}
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("node is not ready")
	})
	return node
}
