package world

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
	simec2 "github.com/dovetail-k8s/dovetail/lab/awsim/ec2"
)

// Tags of a cluster's resources.
const (
	clusterTag   = "eks:eks-cluster-name"
	ownedTag     = "kubernetes.io/cluster/"
	NodeClaimTag = "karpenter.sh/nodeclaim"
)

// sdk is a configuration of the AWS SDK as the account's administrator.
func (w *World) sdk() aws.Config {
	return aws.Config{
		Region: w.cfg.Region, BaseEndpoint: aws.String(w.AWSURL),
		Credentials: credentials.NewStaticCredentialsProvider(credential.AdminAccessKeyID, "test", ""),
	}
}

// zones are those in which clusters have subnets.
func (w *World) zones() []string {
	var out []string
	for _, z := range w.AWS.EC2().Zones()[:3] {
		out = append(out, z.Name)
	}
	return out
}

// EC2 is a client of EC2 as the account's administrator.
func (w *World) EC2() *ec2.Client { return ec2.NewFromConfig(w.sdk()) }

// EKS is a client of EKS as the account's administrator.
func (w *World) EKS() *eks.Client { return eks.NewFromConfig(w.sdk()) }

// IAM is a client of IAM as the account's administrator.
func (w *World) IAM() *iam.Client { return iam.NewFromConfig(w.sdk()) }

// Live reports whether an instance is pending or running.
func Live(i awsim.Instance) bool {
	return i.State == simec2.Pending || i.State == simec2.Running
}

// Instances are the instances of the cluster, terminated ones included, in the order of their launch.
func (c *Cluster) Instances() []awsim.Instance {
	var out []awsim.Instance
	for _, i := range c.world.AWS.Instances() {
		if i.Tags[clusterTag] == c.Name || i.Tags[ownedTag+c.Name] == "owned" {
			out = append(out, i)
		}
	}
	return out
}

// Running are the instances of the cluster that are pending or running.
func (c *Cluster) Running() []awsim.Instance {
	var out []awsim.Instance
	for _, i := range c.Instances() {
		if Live(i) {
			out = append(out, i)
		}
	}
	return out
}

// LeftInAWS names the resources that an autoscaler created for the cluster and that still exist: instances that are not
// terminated, launch templates, instance profiles.
func (c *Cluster) LeftInAWS(ctx context.Context) ([]string, error) {
	var left []string
	for _, i := range c.Instances() {
		if i.State != simec2.Terminated {
			left = append(left, "instance "+i.ID+" ("+i.State+")")
		}
	}
	templates := ec2.NewDescribeLaunchTemplatesPaginator(c.world.EC2(), &ec2.DescribeLaunchTemplatesInput{})
	for templates.HasMorePages() {
		page, err := templates.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list launch templates: %w", err)
		}
		for _, t := range page.LaunchTemplates {
			if tagged(t.Tags, c.Name) {
				left = append(left, "launch template "+aws.ToString(t.LaunchTemplateName))
			}
		}
	}
	profiles := iam.NewListInstanceProfilesPaginator(c.world.IAM(), &iam.ListInstanceProfilesInput{})
	for profiles.HasMorePages() {
		page, err := profiles.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list instance profiles: %w", err)
		}
		for _, p := range page.InstanceProfiles {
			// The only role of the cluster that an instance profile can hold is that of its nodes.
			for _, role := range p.Roles {
				if aws.ToString(role.RoleName) == awsim.NodeRole(c.Name) {
					left = append(left, "instance profile "+aws.ToString(p.InstanceProfileName))
				}
			}
		}
	}
	return left, nil
}

func tagged(tags []ec2types.Tag, cluster string) bool {
	for _, t := range tags {
		if key := aws.ToString(t.Key); key == clusterTag && aws.ToString(t.Value) == cluster || key == ownedTag+cluster {
			return true
		}
	}
	return false
}

// Console is what an instance has written to its serial console.
func (c *Cluster) Console(ctx context.Context, id string) (string, error) {
	out, err := c.world.EC2().GetConsoleOutput(ctx, &ec2.GetConsoleOutputInput{InstanceId: &id})
	if err != nil {
		return "", fmt.Errorf("console of %s: %w", id, err)
	}
	return decodeConsole(aws.ToString(out.Output))
}

// ImageID returns the newest public image with this name prefix.
func (w *World) ImageID(ctx context.Context, prefix string) (string, error) {
	out, err := w.EC2().DescribeImages(ctx, &ec2.DescribeImagesInput{
		Owners:  []string{"amazon"},
		Filters: []ec2types.Filter{{Name: aws.String("name"), Values: []string{prefix + "*"}}},
	})
	if err != nil {
		return "", fmt.Errorf("find image %s*: %w", prefix, err)
	}
	var newest ec2types.Image
	for _, i := range out.Images {
		if strings.Compare(aws.ToString(i.CreationDate), aws.ToString(newest.CreationDate)) > 0 {
			newest = i
		}
	}
	if newest.ImageId == nil {
		return "", errors.New("no image is named " + prefix + "*")
	}
	return *newest.ImageId, nil
}

// decodeConsole reads the base64 that EC2 answers.
func decodeConsole(encoded string) (string, error) {
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", fmt.Errorf("decode console output: %w", err)
	}
	return string(text), nil
}

// InstanceID is the instance that a provider ID (aws:///ZONE/ID) names.
func InstanceID(providerID string) string {
	return providerID[strings.LastIndexByte(providerID, '/')+1:]
}
