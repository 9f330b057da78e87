"""`brick drain`: clear bricks (remove-brick), with an audit before the commit."""
