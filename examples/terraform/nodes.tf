# The role of all nodes: those of the managed node group, and those that Dovetail launches.
resource "aws_iam_role" "node" {
  name = "KarpenterNodeRole-${var.cluster_name}"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "ec2.amazonaws.com" }
      Action    = ["sts:AssumeRole"]
    }]
  })
}

resource "aws_iam_role_policy_attachment" "node" {
  for_each = toset([
    "AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryPullOnly", "AmazonSSMManagedInstanceCore",
  ])
  role       = aws_iam_role.node.name
  policy_arn = "arn:${data.aws_partition.this.partition}:iam::aws:policy/${each.key}"
}

# EKS creates the access entry of the role with the managed node group, and nodes that Dovetail launches join by it, too. Without a
# managed node group of this role, create an aws_eks_access_entry of type EC2_LINUX.
resource "aws_eks_node_group" "system" {
  cluster_name    = aws_eks_cluster.this.name
  node_group_name = "system"
  node_role_arn   = aws_iam_role.node.arn
  subnet_ids      = local.subnet_ids
  ami_type        = "AL2023_x86_64_STANDARD"
  instance_types  = ["m6i.large"]

  # The controller runs here, one replica per node, and never on nodes that it manages.
  scaling_config {
    min_size     = 2
    desired_size = 2
    max_size     = 3
  }

  depends_on = [aws_iam_role_policy_attachment.node, aws_eks_addon.this]
}
