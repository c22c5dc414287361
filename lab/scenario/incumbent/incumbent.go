// Package incumbent is another controller of Karpenter's API, as far as a change of controllers shows it: what it writes
// when it launches nodes, and what it checks when it starts.
//
// It follows the published conventions of Karpenter's AWS provider 1.15, literally: names, tags, labels, annotations,
// finalizers, conditions. It shares no constant and no code with the product.
package incumbent

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What the conventions call things.
const (
	coreGroup = "karpenter.sh"
	awsGroup  = "karpenter.k8s.aws"

	nodePoolLabel     = "karpenter.sh/nodepool"
	capacityTypeLabel = "karpenter.sh/capacity-type"
	nodeClassLabel    = "karpenter.k8s.aws/ec2nodeclass"
	registeredLabel   = "karpenter.sh/registered"
	initializedLabel  = "karpenter.sh/initialized"

	poolHash         = "karpenter.sh/nodepool-hash"
	poolHashVersion  = "karpenter.sh/nodepool-hash-version"
	classHash        = "karpenter.k8s.aws/ec2nodeclass-hash"
	classHashVersion = "karpenter.k8s.aws/ec2nodeclass-hash-version"
	profileName      = "karpenter.k8s.aws/instance-profile-name"
	tagged           = "karpenter.k8s.aws/tagged"
	clusterTagged    = "compatibility.karpenter.k8s.aws/cluster-name-tagged"

	termination      = "karpenter.sh/termination"
	classTermination = "karpenter.k8s.aws/termination"
	unregistered     = "karpenter.sh/unregistered"
	disrupted        = "karpenter.sh/disrupted"

	clusterNameTag = "eks:eks-cluster-name"
	clusterTag     = "kubernetes.io/cluster/"
	claimTag       = "karpenter.sh/nodeclaim"
	regionTag      = "topology.kubernetes.io/region"
)

// The versions of the hashes.
const (
	PoolHashVersion  = "v3"
	ClassHashVersion = "v6"
)

// Config is where the controller works.
type Config struct {
	Kube   client.Client
	EC2    *ec2.Client
	IAM    *iam.Client
	EKS    *eks.Client
	Region string
	// Cluster is the name of the EKS cluster.
	Cluster string
}

// Controller is the other controller. Its methods are the steps that it takes with a NodeClaim, one at a time.
type Controller struct {
	Config
	cluster *ekstypes.Cluster
}

// New returns a controller that knows its cluster.
func New(ctx context.Context, cfg Config) (*Controller, error) {
	out, err := cfg.EKS.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &cfg.Cluster})
	if err != nil {
		return nil, fmt.Errorf("describe cluster %s: %w", cfg.Cluster, err)
	}
	return &Controller{Config: cfg, cluster: out.Cluster}, nil
}

// Version is the minor version of Kubernetes.
func (c *Controller) Version() string { return aws.ToString(c.cluster.Version) }

// object is any object of the API server.
type object = unstructured.Unstructured

func newObject(group, kind string) *object {
	o := &object{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	return o
}

func (c *Controller) get(ctx context.Context, group, kind, name string) (*object, error) {
	o := newObject(group, kind)
	return o, c.Kube.Get(ctx, client.ObjectKey{Name: name}, o)
}

func (c *Controller) list(ctx context.Context, group, kind string) ([]object, error) {
	var out unstructured.UnstructuredList
	out.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind + "List"})
	return out.Items, c.Kube.List(ctx, &out)
}

// change patches an object and, if the patch has one, its status.
func (c *Controller) change(ctx context.Context, o *object, patch map[string]any) error {
	raw, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	name := o.GetKind() + " " + o.GetName()
	if err := c.Kube.Patch(ctx, o, client.RawPatch("application/merge-patch+json", raw)); err != nil {
		return fmt.Errorf("patch %s: %w", name, err)
	}
	if patch["status"] == nil || o.GetKind() == "Node" {
		return nil
	}
	if err := c.Kube.Status().Patch(ctx, o, client.RawPatch("application/merge-patch+json", raw)); err != nil {
		return fmt.Errorf("patch the status of %s: %w", name, err)
	}
	return nil
}

func text(o *object, fields ...string) string {
	out, _, _ := unstructured.NestedString(o.Object, fields...)
	return out
}

// tags are those of everything that belongs to a node class, with the user's.
func (c *Controller) tags(class *object) map[string]string {
	out := map[string]string{}
	user, _, _ := unstructured.NestedStringMap(class.Object, "spec", "tags")
	for key, value := range user {
		out[key] = value
	}
	out[clusterTag+c.Cluster] = "owned"
	out[clusterNameTag] = c.Cluster
	out[nodeClassLabel] = class.GetName()
	return out
}

// launchTags are those of what is launched.
func (c *Controller) launchTags(class *object, pool string) map[string]string {
	out := c.tags(class)
	out[nodePoolLabel] = pool
	return out
}

func ec2Tags(tags map[string]string) []ec2types.Tag {
	var out []ec2types.Tag
	for key, value := range tags {
		out = append(out, ec2types.Tag{Key: aws.String(key), Value: aws.String(value)})
	}
	return out
}
