package incumbent

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Node is what is launched for a NodeClaim.
type Node struct {
	Pool         string
	InstanceType string
	CapacityType string // on-demand or spot
	// Subnet is an index into the node class's subnets, which begin again at their end.
	Subnet int
	// CPU is the request of the pods, such as "1".
	CPU string
}

// Create creates a NodeClaim with its finalizer. Nothing is launched yet.
func (c *Controller) Create(ctx context.Context, n Node) (*object, error) {
	pool, err := c.get(ctx, coreGroup, "NodePool", n.Pool)
	if err != nil {
		return nil, err
	}
	template, _, _ := unstructured.NestedMap(pool.Object, "spec", "template", "spec")
	labels, _, _ := unstructured.NestedStringMap(pool.Object, "spec", "template", "metadata", "labels")
	annotations, _, _ := unstructured.NestedStringMap(pool.Object, "spec", "template", "metadata", "annotations")
	labels, annotations = maps.Clone(labels), maps.Clone(annotations)
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	className := text(pool, "spec", "template", "spec", "nodeClassRef", "name")
	labels[nodePoolLabel], labels[nodeClassLabel] = n.Pool, className
	for _, key := range []string{poolHash, poolHashVersion} {
		annotations[key] = pool.GetAnnotations()[key]
	}
	annotations["karpenter.sh/nodeclaim-min-values-relaxed"] = "false"
	requirements, _, _ := unstructured.NestedSlice(template, "requirements")
	only := map[string]string{corev1.LabelInstanceTypeStable: n.InstanceType, capacityTypeLabel: n.CapacityType}
	requirements = slices.DeleteFunc(requirements, func(r any) bool { return only[r.(map[string]any)["key"].(string)] != "" })
	for key, value := range labels {
		requirements = append(requirements, requirement(key, value))
	}
	for key, value := range only {
		requirements = append(requirements, requirement(key, value))
	}
	template["requirements"] = requirements
	template["resources"] = map[string]any{"requests": map[string]any{"cpu": n.CPU, "memory": "1Gi", "pods": "3"}}
	claim := newObject(coreGroup, "NodeClaim")
	claim.SetGenerateName(n.Pool + "-")
	claim.SetLabels(labels)
	claim.SetAnnotations(annotations)
	claim.SetFinalizers([]string{termination})
	if err := unstructured.SetNestedSlice(claim.Object, []any{map[string]any{
		"apiVersion": coreGroup + "/v1", "kind": "NodePool", "name": n.Pool, "uid": string(pool.GetUID()), "blockOwnerDeletion": true,
	}}, "metadata", "ownerReferences"); err != nil {
		return nil, err
	}
	claim.Object["spec"] = template
	if err := c.Kube.Create(ctx, claim); err != nil {
		return nil, fmt.Errorf("create a NodeClaim of NodePool %s: %w", n.Pool, err)
	}
	return claim, nil
}

func requirement(key, value string) map[string]any {
	return map[string]any{"key": key, "operator": "In", "values": []any{value}}
}

// Launch launches the instance of a NodeClaim, and writes it into the claim.
func (c *Controller) Launch(ctx context.Context, claim *object, n Node) error {
	class, err := c.get(ctx, awsGroup, "EC2NodeClass", claim.GetLabels()[nodeClassLabel])
	if err != nil {
		return err
	}
	status, err := readStatus(class)
	if err != nil {
		return err
	}
	image, err := status.image()
	if err != nil {
		return fmt.Errorf("EC2NodeClass %s: %w", class.GetName(), err)
	}
	labels, err := c.typeLabels(ctx, n)
	if err != nil {
		return err
	}
	subnet := status.Subnets[n.Subnet%len(status.Subnets)]
	labels[corev1.LabelTopologyZone], labels["topology.k8s.aws/zone-id"] = subnet.Zone, subnet.ZoneID
	maps.Copy(labels, claim.GetLabels())
	tags := c.launchTags(class, n.Pool)
	name, err := c.ensureTemplate(ctx, class, tags, &ec2types.RequestLaunchTemplateData{
		ImageId:            &image,
		IamInstanceProfile: &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: &status.InstanceProfile},
		UserData:           aws.String(base64.StdEncoding.EncodeToString([]byte(c.userData(labels)))),
		Monitoring:         &ec2types.LaunchTemplatesMonitoringRequest{Enabled: aws.Bool(false)},
		MetadataOptions: &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{
			HttpEndpoint: "enabled", HttpProtocolIpv6: "disabled", HttpPutResponseHopLimit: aws.Int32(1), HttpTokens: "required",
			InstanceMetadataTags: "disabled",
		},
		NetworkInterfaces: []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{
			{DeviceIndex: aws.Int32(0), Groups: status.groups()},
		},
		TagSpecifications: []ec2types.LaunchTemplateTagSpecificationRequest{{ResourceType: "network-interface", Tags: ec2Tags(tags)}},
	})
	if err != nil {
		return err
	}
	instance, err := c.createFleet(ctx, fleet{
		template: name, node: n, subnet: subnet.ID, zone: subnet.Zone, image: image, tags: tags,
	})
	if err != nil {
		return err
	}
	capacity := map[string]any{
		"cpu": labels["karpenter.k8s.aws/instance-cpu"], "memory": labels["karpenter.k8s.aws/instance-memory"] + "Mi",
		"pods": "29", "ephemeral-storage": "20Gi",
	}
	return c.change(ctx, claim, map[string]any{
		"metadata": map[string]any{"labels": labels, "annotations": map[string]any{
			classHash: class.GetAnnotations()[classHash], classHashVersion: class.GetAnnotations()[classHashVersion],
			profileName: status.InstanceProfile,
		}},
		"status": map[string]any{
			"providerID": "aws:///" + subnet.Zone + "/" + instance, "imageID": image, "capacity": capacity, "allocatable": capacity,
			"conditions": conditions(claim, "Launched"),
		},
	})
}

// typeLabels are the labels that name an instance type and its properties.
func (c *Controller) typeLabels(ctx context.Context, n Node) (map[string]string, error) {
	out, err := c.EC2.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{
		InstanceTypes: []ec2types.InstanceType{ec2types.InstanceType(n.InstanceType)},
	})
	if err != nil || len(out.InstanceTypes) != 1 {
		return nil, errors.Join(fmt.Errorf("describe instance type %s", n.InstanceType), err)
	}
	t := out.InstanceTypes[0]
	family, size, _ := strings.Cut(n.InstanceType, ".")
	generation := strings.TrimLeft(family, "abcdefghijklmnopqrstuvwxyz")
	const of = "karpenter.k8s.aws/instance-"
	return map[string]string{
		corev1.LabelInstanceTypeStable: n.InstanceType, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
		corev1.LabelTopologyRegion: c.Region, capacityTypeLabel: n.CapacityType,
		of + "family": family, of + "size": size, of + "category": family[:1], of + "generation": generation[:1],
		of + "cpu": strconv.Itoa(int(*t.VCpuInfo.DefaultVCpus)), of + "memory": strconv.FormatInt(*t.MemoryInfo.SizeInMiB, 10),
		of + "hypervisor": string(t.Hypervisor), of + "tenancy": "default", of + "capability-flex": "false",
		of + "encryption-in-transit-supported": strconv.FormatBool(*t.NetworkInfo.EncryptionInTransitSupported),
	}, nil
}

// ensureTemplate creates a launch template. Its name is a hash of all that it holds.
func (c *Controller) ensureTemplate(
	ctx context.Context, class *object, tags map[string]string, data *ec2types.RequestLaunchTemplateData,
) (string, error) {
	sum, err := hash([]any{c.Cluster, class.GetName(), tags, data})
	if err != nil {
		return "", err
	}
	name := "karpenter.k8s.aws/" + sum
	_, err = c.EC2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: &name, LaunchTemplateData: data,
		TagSpecifications: []ec2types.TagSpecification{{ResourceType: "launch-template", Tags: ec2Tags(tags)}},
	})
	if err != nil && !strings.Contains(err.Error(), "AlreadyExists") {
		return "", fmt.Errorf("create launch template %s: %w", name, err)
	}
	return name, nil
}

// fleet is what one call of CreateFleet launches.
type fleet struct {
	template, subnet, zone, image string
	node                          Node
	tags                          map[string]string
}

func (c *Controller) createFleet(ctx context.Context, f fleet) (instance string, err error) {
	in := &ec2.CreateFleetInput{
		Type: ec2types.FleetTypeInstant,
		LaunchTemplateConfigs: []ec2types.FleetLaunchTemplateConfigRequest{{
			LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{
				LaunchTemplateName: &f.template, Version: aws.String("$Latest"),
			},
			Overrides: []ec2types.FleetLaunchTemplateOverridesRequest{{
				InstanceType: ec2types.InstanceType(f.node.InstanceType), SubnetId: &f.subnet, AvailabilityZone: &f.zone, ImageId: &f.image,
			}},
		}},
		TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{
			TotalTargetCapacity: aws.Int32(1), DefaultTargetCapacityType: ec2types.DefaultTargetCapacityType(f.node.CapacityType),
		},
	}
	if f.node.CapacityType == "spot" {
		in.SpotOptions = &ec2types.SpotOptionsRequest{AllocationStrategy: "price-capacity-optimized"}
	} else {
		in.OnDemandOptions = &ec2types.OnDemandOptionsRequest{AllocationStrategy: "lowest-price"}
	}
	for _, kind := range []ec2types.ResourceType{"instance", "volume", "fleet"} {
		in.TagSpecifications = append(in.TagSpecifications, ec2types.TagSpecification{ResourceType: kind, Tags: ec2Tags(f.tags)})
	}
	out, err := c.EC2.CreateFleet(ctx, in)
	if err != nil {
		return "", fmt.Errorf("launch %s: %w", f.node.InstanceType, err)
	}
	if len(out.Instances) != 1 || len(out.Instances[0].InstanceIds) != 1 {
		var why []string
		for _, e := range out.Errors {
			why = append(why, aws.ToString(e.ErrorCode)+": "+aws.ToString(e.ErrorMessage))
		}
		return "", fmt.Errorf("launch %s: EC2 launched %d instances: %s", f.node.InstanceType, len(out.Instances), strings.Join(why, "; "))
	}
	return out.Instances[0].InstanceIds[0], nil
}

// userData is that of an AL2023 image.
func (c *Controller) userData(labels map[string]string) string {
	var own []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		domain, _, _ := strings.Cut(key, "/")
		if strings.HasSuffix("."+domain, ".kubernetes.io") || strings.HasSuffix("."+domain, ".k8s.io") {
			continue // kubelet may not set them
		}
		own = append(own, key+"="+labels[key])
	}
	own = append(own, "karpenter.sh/do-not-sync-taints=true")
	return fmt.Sprintf(`MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

# Karpenter Generated NodeConfig
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
metadata: {}
spec:
  cluster:
    apiServerEndpoint: %s
    certificateAuthority: %s
    cidr: %s
    name: %s
  instance:
    localStorage: {}
  kubelet:
    config:
      maxPods: 29
      registerWithTaints:
      - effect: NoExecute
        key: %s
    flags:
    - --node-labels=%q
--//--
`, *c.cluster.Endpoint, *c.cluster.CertificateAuthority.Data, *c.cluster.KubernetesNetworkConfig.ServiceIpv4Cidr, c.Cluster, unregistered,
		strings.Join(own, ","))
}
